/* Pages, and pages touched ahead: whatever was guessed, what is taken has the size that was asked for and is zero. */
#include "core/pages.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"
#include "test.h"

TEST(absurd_sizes_are_refused)
{
    void *memory = NULL;
    sl_pages_ahead *ahead = NULL;
    CHECK_FAILS(sl_pages_map((size_t) 1 << 60, &memory), SL_E_MEMORY);
    CHECK_FAILS(sl_pages_ahead_begin((size_t) 1 << 60, &ahead), SL_E_MEMORY);
    CHECK(memory == NULL && ahead == NULL);
    CHECK_OK(sl_pages_ahead_begin(1 << 20, &ahead));
    CHECK_FAILS(sl_pages_ahead_take(ahead, (size_t) 1 << 60, &memory), SL_E_MEMORY);
    CHECK(memory == NULL && sl_pages_ahead_bytes(ahead) == 1 << 20);
    CHECK_OK(sl_pages_ahead_take(ahead, 4096, &memory)); /* what could be had is still there */
    sl_pages_unmap(memory, 4096);
    sl_pages_ahead_end(ahead);
    CHECK_I64(sl_heap_bytes(), 0);
}

TEST(pages_are_zero_and_uncounted)
{
    char *pages;
    size_t before = sl_heap_bytes(), bytes = (size_t) 8 << 20;
    CHECK_OK(sl_pages_map(bytes, (void **) &pages));
    CHECK_I64(sl_heap_bytes(), before);
    CHECK(pages[0] == 0 && pages[bytes - 1] == 0);
    pages[bytes - 1] = 1;
    sl_pages_unmap(pages, bytes);
    sl_pages_unmap(NULL, 0);
}

/* Bytes of this process that are in memory, counted page by page: statm's figure lags behind by what each core has not reported
 * yet, megabytes on a large machine. */
static int64_t resident(void)
{
    long long kib = -1;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && kib < 0 && fgets(line, sizeof line, file))
        sscanf(line, "Rss: %lld kB", &kib);
    if (file)
        fclose(file);
    if (kib < 0)
        SKIP("no /proc/self/smaps_rollup here");
    return (int64_t) kib << 10;
}

static void check_taken(size_t guessed, size_t wanted)
{
    sl_pages_ahead *ahead;
    char *pages;
    CHECK_OK(sl_pages_ahead_begin(guessed, &ahead));
    CHECK_I64(sl_pages_ahead_bytes(ahead), guessed);
    CHECK_OK(sl_pages_ahead_take(ahead, wanted, (void **) &pages));
    CHECK_I64(sl_pages_ahead_bytes(ahead), 0);
    for (size_t i = 0; i < wanted; i += 1021)
        if (pages[i])
            CHECK_MSG(false, "byte %zu of %zu is not zero", i, wanted);
    memset(pages, 1, wanted);
    void *second;
    CHECK_OK(sl_pages_ahead_take(ahead, 100, &second)); /* as sl_pages_map */
    sl_pages_unmap(second, 100);
    sl_pages_ahead_end(ahead);
    CHECK(pages[0] == 1 && pages[wanted - 1] == 1); /* it belongs to whoever took it */
    sl_pages_unmap(pages, wanted);
}

TEST(guesses_may_be_wrong)
{
    const size_t mib = (size_t) 1 << 20;
    check_taken(16 * mib, 16 * mib);
    check_taken(16 * mib, 5 * mib + 4097);
    check_taken(3 * mib + 1, 24 * mib);
    check_taken(1, 1);
    check_taken(7 * mib, 1);
    void *pages;
    CHECK_OK(sl_pages_ahead_take(NULL, 4096, &pages));
    sl_pages_unmap(pages, 4096);
    CHECK_I64(sl_pages_ahead_bytes(NULL), 0);
}

TEST(touched_while_nobody_waits)
{
    const int64_t bytes = (int64_t) 16 << 20, before = resident();
    const int64_t other = 1 << 20; /* the program's own pages come and go */
    sl_pages_ahead *ahead;
    CHECK_OK(sl_pages_ahead_begin((size_t) bytes, &ahead));
    for (int i = 0; i < 24000 && resident() < before + bytes - other; i++) /* idle cores may be rare */
        usleep(10000);
    CHECK(resident() >= before + bytes - other);
    sl_pages_ahead_stop(ahead);
    sl_pages_ahead_go_on(ahead);
    sl_pages_ahead_end(ahead);                                /* nobody took it */
    CHECK_OK(sl_pages_ahead_begin((size_t) 1 << 30, &ahead)); /* given up half way */
    sl_pages_ahead_end(ahead);
    sl_pages_ahead_stop(NULL);
    sl_pages_ahead_go_on(NULL);
    sl_pages_ahead_end(NULL);
    CHECK_I64(sl_heap_bytes(), 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(absurd_sizes_are_refused);
    RUN(pages_are_zero_and_uncounted);
    RUN(guesses_may_be_wrong);
    RUN(touched_while_nobody_waits);
    return test_end();
}
