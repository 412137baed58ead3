/* The table is kept as runs and unfolded once, into blocks of 256 that are stored once each: what a text touches of it stays in the
 * fastest cache, whichever scripts it mixes. */
#include "text/unicode.h"

#include <pthread.h>
#include <string.h>

static sl_classes table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The number of the block, which is added where it is new. */
static uint8_t keep_block(const uint8_t *block, int64_t *count)
{
    int64_t i = *count;
    while (i > 0 && memcmp(table.blocks[i - 1], block, SL_CLASS_BLOCK) != 0)
        i--;
    if (i > 0)
        return (uint8_t) (i - 1);
    SL_ASSERT(*count < SL_COUNT(table.blocks));
    memcpy(table.blocks[*count], block, SL_CLASS_BLOCK);
    return (uint8_t) (*count)++;
}

static void unfold(void)
{
    int64_t run = 0, count = 0;
    uint8_t block[SL_CLASS_BLOCK];
    for (uint32_t i = 0; i < SL_COUNT(table.block_of); i++) {
        uint32_t from = i * SL_CLASS_BLOCK, end = from + SL_CLASS_BLOCK;
        while (from < end) {
            uint32_t stop = run + 1 < sl_unicode_run_count ? SL_MIN(sl_unicode_runs[run + 1] >> 8, end) : end;
            memset(block + from % SL_CLASS_BLOCK, (int) (sl_unicode_runs[run] & 255), stop - from);
            from = stop;
            run += run + 1 < sl_unicode_run_count && sl_unicode_runs[run + 1] >> 8 == stop;
        }
        table.block_of[i] = keep_block(block, &count);
    }
}

const sl_classes *sl_unicode_table(void)
{
    pthread_once(&once, unfold);
    return &table;
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
