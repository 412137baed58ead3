/* The table is kept as runs and unfolded once: a flat table needs a single load, and text touches only the few lines of it that its
 * script uses. */
#include "text/unicode.h"

#include <pthread.h>
#include <string.h>

enum { POINTS = 0x110000 };
static uint8_t classes[POINTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void unfold(void)
{
    for (int64_t i = 0; i < sl_unicode_run_count; i++) {
        uint32_t from = sl_unicode_runs[i] >> 8;
        uint32_t to = i + 1 < sl_unicode_run_count ? sl_unicode_runs[i + 1] >> 8 : POINTS;
        memset(classes + from, (int) (sl_unicode_runs[i] & 255), to - from);
    }
}

const uint8_t *sl_unicode_table(void)
{
    pthread_once(&once, unfold);
    return classes;
}

uint32_t sl_utf8_before(const char *begin, const char **at)
{
    const char *p = *at - 1;
    while (p > begin && (*p & 0xc0) == 0x80)
        p--;
    *at = p;
    return sl_utf8_next(&p);
}

int sl_utf8_put(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char) code;
        return 1;
    }
    int bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = bytes - 1; i > 0; i--, code >>= 6)
        out[i] = (char) (0x80 | (code & 0x3f));
    out[0] = (char) (lead[bytes] | code);
    return bytes;
}
