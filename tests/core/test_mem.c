/* The counted heap, regions and pages; also status messages and fault arming, which they lean on. */
#include "core/mem.h"

#include <pthread.h>

#include "core/fault.h"
#include "test.h"

TEST(counts_are_exact)
{
    size_t before = sl_heap_bytes();
    uint64_t calls = sl_heap_calls();
    int64_t *numbers;
    CHECK_OK(sl_alloc(&numbers, 1000, sizeof *numbers));
    CHECK_I64(sl_heap_calls(), calls + 1);
    CHECK(sl_heap_bytes() >= before + 8000 && sl_heap_bytes() <= before + 8100);
    CHECK(sl_heap_peak_bytes() >= sl_heap_bytes());
    for (int i = 0; i < 1000; i++)
        if (numbers[i])
            CHECK_MSG(false, "not zeroed at %d", i);
    sl_free(numbers);
    sl_free(NULL);
    CHECK_I64(sl_heap_bytes(), before);
    CHECK(sl_heap_peak_bytes() >= before + 8000);
    sl_heap_peak_reset();
    CHECK_I64(sl_heap_peak_bytes(), before);
}

TEST(a_limit_holds)
{
    char *held, *more;
    CHECK_OK(sl_alloc(&held, 1000, 1));
    sl_heap_limit(sl_heap_bytes() + 5000);
    CHECK_FAILS(sl_alloc(&more, 5001, 1), SL_E_DOES_NOT_FIT);
    CHECK_CONTAINS(sl_error_message(), "more than the host budget");
    CHECK_OK(sl_alloc(&more, 4000, 1));
    CHECK(sl_heap_bytes() <= 6100);
    sl_free(more);
    sl_heap_limit(10); /* less than there is already */
    CHECK_FAILS(sl_alloc(&more, 1, 1), SL_E_DOES_NOT_FIT);
    sl_heap_limit(SIZE_MAX);
    CHECK_OK(sl_alloc(&more, 1 << 20, 1));
    sl_free(more);
    sl_free(held);
}

TEST(alignment_is_kept)
{
    for (size_t align = 16; align <= 1 << 21; align *= 2)
        for (size_t size = 0; size <= 100; size += 33) {
            char *memory;
            CHECK_OK(sl_alloc_aligned(&memory, size, 1, align));
            CHECK((uintptr_t) memory % align == 0);
            memset(memory, 0xff, size);
            sl_free(memory);
        }
    void *plain;
    CHECK_OK(sl_alloc(&plain, 3, 1));
    CHECK((uintptr_t) plain % 16 == 0);
    sl_free(plain);
    CHECK_I64(sl_heap_bytes(), 0);
}

TEST(growing_keeps_and_zeroes)
{
    int *numbers = NULL;
    CHECK_OK(sl_grow(&numbers, 0, 10, sizeof *numbers));
    for (int i = 0; i < 10; i++)
        numbers[i] = i + 1;
    CHECK_OK(sl_grow(&numbers, 10, 1000, sizeof *numbers));
    for (int i = 0; i < 1000; i++)
        if (numbers[i] != (i < 10 ? i + 1 : 0))
            CHECK_MSG(false, "wrong at %d", i);
    int *before = numbers;
    sl_fault_arm(SL_FAULT_ALLOC, 1);
    CHECK_FAILS(sl_grow(&numbers, 1000, 2000, sizeof *numbers), SL_E_MEMORY);
    sl_fault_arm(SL_FAULT_ALLOC, 0);
    CHECK(numbers == before && numbers[9] == 10);
    sl_free(numbers);
    char *copy;
    CHECK_OK(sl_strdup("text", &copy));
    CHECK_STR(copy, "text");
    sl_free(copy);
}

TEST(absurd_sizes_are_refused)
{
    void *memory = NULL;
    CHECK_FAILS(sl_alloc(&memory, SIZE_MAX / 2, 3), SL_E_MEMORY);
    CHECK_FAILS(sl_alloc(&memory, SIZE_MAX, 1), SL_E_MEMORY);
    CHECK_FAILS(sl_alloc_aligned(&memory, SIZE_MAX - 10, 1, 64), SL_E_MEMORY);
    sl_region *region;
    CHECK_OK(sl_region_create(&region));
    CHECK_FAILS(sl_region_alloc(region, &memory, SIZE_MAX / 2, 3), SL_E_MEMORY);
    CHECK_FAILS(sl_region_alloc(region, &memory, SIZE_MAX - 3, 1), SL_E_MEMORY);
    sl_region_destroy(region);
    CHECK(memory == NULL);
}

TEST(regions_hold_everything_until_the_end)
{
    sl_region *region;
    CHECK_OK(sl_region_create(&region));
    enum { N = 3000 };
    static unsigned char *pieces[N];
    for (int i = 0; i < N; i++) {
        size_t size = (size_t) (i * 37 % 700) + (i % 500 == 0 ? 100000u : 0u);
        CHECK_OK(sl_region_alloc(region, &pieces[i], size + 1, 1));
        CHECK((uintptr_t) pieces[i] % 16 == 0);
        for (size_t k = 0; k <= size; k++)
            if (pieces[i][k])
                CHECK_MSG(false, "piece %d not zeroed", i);
        memset(pieces[i], i & 0xff, size + 1);
    }
    for (int i = 0; i < N; i++)
        if (pieces[i][0] != (i & 0xff) || pieces[i][i * 37 % 700] != (i & 0xff))
            CHECK_MSG(false, "piece %d overwritten", i);
    const char *text;
    CHECK_OK(sl_region_printf(region, &text, "%s-%d", "layer", 12));
    CHECK_STR(text, "layer-12");
    CHECK_OK(sl_region_strdup(region, "", &text));
    CHECK_STR(text, "");
    sl_region_destroy(region);
    sl_region_destroy(NULL);
    CHECK_I64(sl_heap_bytes(), 0);
}

static void *churn(void *argument)
{
    (void) argument;
    for (int i = 0; i < 20000; i++) {
        void *memory;
        if (sl_alloc(&memory, (size_t) (i % 100), 8) == SL_OK)
            sl_free(memory);
    }
    sl_fail(SL_E_IO, "another thread's message");
    return NULL;
}

TEST(threads_count_together)
{
    pthread_t threads[4];
    uint64_t calls = sl_heap_calls();
    sl_fail(SL_E_IO, "mine");
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_I64(sl_heap_bytes(), 0);
    CHECK_I64(sl_heap_calls(), calls + 80000);
    CHECK_STR(sl_error_message(), "mine");
}

TEST(messages)
{
    CHECK(sl_fail(SL_E_FORMAT, "at byte %d", 7) == SL_E_FORMAT);
    CHECK_STR(sl_error_message(), "at byte 7");
    CHECK(sl_fail_at(SL_E_FORMAT, "a.bin") == SL_E_FORMAT);
    CHECK_STR(sl_error_message(), "a.bin: at byte 7");
    sl_fail(SL_E_IO, "(%s)", sl_error_message());
    CHECK_STR(sl_error_message(), "(a.bin: at byte 7)");
    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    sl_fail(SL_E_IO, "%s", longer);
    sl_fail_at(SL_E_IO, "%s", longer);
    CHECK(strlen(sl_error_message()) > 1000);
    CHECK_STR(sl_status_name(SL_E_DOES_NOT_FIT), "SL_E_DOES_NOT_FIT");
    CHECK_STR(sl_status_name((sl_status) 999), "unknown status");
    CHECK_STR(sl_version(), SL_VERSION);
}

TEST(faults_from_the_environment)
{
    setenv("SLUICE_FAULT", "alloc:2,write:17", 1);
    CHECK_OK(sl_fault_arm_from_env());
    void *memory;
    CHECK_OK(sl_alloc(&memory, 1, 1));
    sl_free(memory);
    CHECK_FAILS(sl_alloc(&memory, 1, 1), SL_E_MEMORY);
    CHECK_OK(sl_alloc(&memory, 1, 1)); /* once */
    sl_free(memory);
    CHECK_I64(sl_fault_events(SL_FAULT_ALLOC), 3);
    sl_fault_arm(SL_FAULT_ALLOC, 0);
    sl_fault_arm(SL_FAULT_WRITE, 0);
    static const char *const bad[] = {"alloc", "alloc:", "alloc:0", "alloc:x", "disk:1", "alloc:1x", "alloc:-1"};
    for (int64_t i = 0; i < SL_COUNT(bad); i++) {
        setenv("SLUICE_FAULT", bad[i], 1);
        CHECK_FAILS(sl_fault_arm_from_env(), SL_E_USAGE);
    }
    unsetenv("SLUICE_FAULT");
    CHECK_OK(sl_fault_arm_from_env());
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(counts_are_exact);
    RUN(a_limit_holds);
    RUN(alignment_is_kept);
    RUN(growing_keeps_and_zeroes);
    RUN(absurd_sizes_are_refused);
    RUN(regions_hold_everything_until_the_end);
    RUN(threads_count_together);
    RUN(messages);
    RUN(faults_from_the_environment);
    return test_end();
}
