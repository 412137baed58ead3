/* What a test program is made of.
 *
 *     TEST(adds)
 *     {
 *         int64_t sum;
 *         CHECK_OK(sl_add(1, 2, &sum));
 *         CHECK_I64(sum, 3);
 *     }
 *     int main(int argc, char **argv)
 *     {
 *         test_begin(argc, argv);
 *         RUN(adds);
 *         return test_end();
 *     }
 *
 * A failed CHECK is printed and counted, and the test goes on; a failed CHECK_OK or REQUIRE ends the program, because what
 * follows builds on it. A warning in the log that the test did not announce with test_expect_warnings() is a failure, and so
 * is an announced one that does not come. `test_x NAME` runs only the tests whose name contains NAME, and fails if there is
 * none. With SLUICE_TEST_STOP in the environment the first failed check ends the program. SKIP ends it with 77, which ctest
 * counts as skipped; tools/run-tests says which reasons CI accepts. */
#ifndef SL_TESTS_TEST_H
#define SL_TESTS_TEST_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"

/* Warnings that the running test announced: `count` of them, each with `text`. */
typedef struct test_expected {
    const char *text;
    int count, seen;
} test_expected;
enum { TEST_ANY = -1, TEST_MOST_EXPECTED = 8 };

static int test_checks, test_failures, test_cases_run;
static int test_warnings, test_unexpected; /* in the whole program; since the last test ended */
static test_expected test_expectations[TEST_MOST_EXPECTED];
static int test_expectation_count;
static const char *test_filter;
static bool test_stop; /* at the first failed check */
static char test_dir_path[256];

#define TEST(name) static void test_case_##name(void)
#define RUN(name) test_run(#name, test_case_##name)

#define TEST_REPORT(ok, ...)                       \
    do {                                           \
        test_checks++;                             \
        if (!(ok)) {                               \
            test_failures++;                       \
            printf("%s:%d: ", __FILE__, __LINE__); \
            printf(__VA_ARGS__);                   \
            printf("\n");                          \
            fflush(stdout);                        \
            if (test_stop)                         \
                exit(1);                           \
        }                                          \
    } while (0)

#define CHECK(cond) TEST_REPORT(cond, "%s", #cond)
/* As CHECK, with the numbers: CHECK_MSG(a < b, "a %d, b %d", a, b). */
#define CHECK_MSG(cond, ...) TEST_REPORT(cond, __VA_ARGS__)
#define CHECK_I64(got, want)                                                              \
    do {                                                                                  \
        int64_t got_ = (int64_t) (got), want_ = (int64_t) (want);                         \
        TEST_REPORT(got_ == want_, "%s is %" PRId64 ", not %" PRId64, #got, got_, want_); \
    } while (0)
#define CHECK_U64(got, want)                                                                  \
    do {                                                                                      \
        uint64_t got_ = (uint64_t) (got), want_ = (uint64_t) (want);                          \
        TEST_REPORT(got_ == want_, "%s is 0x%" PRIx64 ", not 0x%" PRIx64, #got, got_, want_); \
    } while (0)
#define CHECK_STR(got, want)                                                                                           \
    do {                                                                                                               \
        const char *got_ = (got), *want_ = (want);                                                                     \
        TEST_REPORT(got_ &&want_ &&strcmp(got_, want_) == 0, "%s is \"%s\", not \"%s\"", #got, got_ ? got_ : "(null)", \
                    want_ ? want_ : "(null)");                                                                         \
    } while (0)
#define CHECK_CONTAINS(got, part)                                                                                     \
    do {                                                                                                              \
        const char *got_ = (got), *part_ = (part);                                                                    \
        TEST_REPORT(got_ &&strstr(got_, part_), "%s is \"%s\", without \"%s\"", #got, got_ ? got_ : "(null)", part_); \
    } while (0)
/* |got - want| <= tolerance; NaN never passes. */
#define CHECK_NEAR(got, want, tolerance)                                                                               \
    do {                                                                                                               \
        double got_ = (double) (got), want_ = (double) (want);                                                         \
        TEST_REPORT(fabs(got_ - want_) <= (tolerance), "%s is %.9g, not %.9g (off by %.3g, allowed %.3g)", #got, got_, \
                    want_, fabs(got_ - want_), (double) (tolerance));                                                  \
    } while (0)
#define CHECK_OK(expr)                                                                                   \
    do {                                                                                                 \
        sl_status status_ = (expr);                                                                      \
        TEST_REPORT(status_ == SL_OK, "%s: %s: %s", #expr, sl_status_name(status_), sl_error_message()); \
        if (status_ != SL_OK)                                                                            \
            exit(test_end());                                                                            \
    } while (0)
/* The call must fail with exactly this status, and with a message. */
#define CHECK_FAILS(expr, want)                                                                                        \
    do {                                                                                                               \
        sl_status status_ = (expr);                                                                                    \
        TEST_REPORT(status_ == (want), "%s gave %s, not %s: %s", #expr, sl_status_name(status_), sl_status_name(want), \
                    sl_error_message());                                                                               \
        TEST_REPORT(status_ == SL_OK || sl_error_message()[0], "%s failed without a message", #expr);                  \
    } while (0)
#define REQUIRE(cond)                  \
    do {                               \
        bool ok_ = (cond);             \
        TEST_REPORT(ok_, "%s", #cond); \
        if (!ok_)                      \
            exit(test_end());          \
    } while (0)
#define SKIP(...)                              \
    do {                                       \
        printf("skipped: ");                   \
        printf(__VA_ARGS__);                   \
        printf("\n");                          \
        exit(test_failures ? test_end() : 77); \
    } while (0)

static inline void test_on_log(void *user, sl_log_level level, const char *message)
{
    (void) user;
    if (level < SL_LOG_WARN)
        return;
    printf("log: %s\n", message);
    test_warnings++;
    for (int i = 0; i < test_expectation_count; i++) {
        test_expected *e = &test_expectations[i];
        if (strstr(message, e->text) && (e->count == TEST_ANY || e->seen < e->count)) {
            e->seen++;
            return;
        }
    }
    test_unexpected++;
}

/* The rest of this test logs exactly `count` warnings that contain `text`; with TEST_ANY any number, none included. */
static inline void test_expect_warnings(int count, const char *text)
{
    if (test_expectation_count == TEST_MOST_EXPECTED) {
        printf("a test announces more than %d kinds of warnings\n", TEST_MOST_EXPECTED);
        exit(1);
    }
    test_expectations[test_expectation_count++] = (test_expected){text, count, 0};
}

/* At the end of a test: what came unannounced, and what was announced and did not come. */
static inline void test_check_warnings(void)
{
    if (test_unexpected) {
        printf("%d unexpected warnings in the log\n", test_unexpected);
        test_failures++;
    }
    for (int i = 0; i < test_expectation_count; i++) {
        const test_expected *e = &test_expectations[i];
        if (e->count == TEST_ANY || e->seen == e->count)
            continue;
        printf("%d warnings with \"%s\", not %d\n", e->seen, e->text, e->count);
        test_failures++;
    }
    test_unexpected = test_expectation_count = 0;
}

static inline void test_remove_dir(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", test_dir_path);
    if (test_dir_path[0] && system(command) != 0)
        printf("could not remove %s\n", test_dir_path);
}

/* A fresh folder for this program's files, removed when it ends. */
static inline const char *test_dir(void)
{
    if (!test_dir_path[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(test_dir_path, sizeof test_dir_path, "%s/sluice-test-XXXXXX", base && base[0] ? base : "/tmp");
        if (!mkdtemp(test_dir_path)) {
            printf("cannot create %s\n", test_dir_path);
            exit(1);
        }
        atexit(test_remove_dir);
    }
    return test_dir_path;
}

/* test_dir()/name, in one of eight rotating buffers. */
static inline const char *test_path(const char *name)
{
    static char paths[8][512];
    static int turn;
    char *path = paths[turn++ & 7];
    snprintf(path, 512, "%s/%s", test_dir(), name);
    return path;
}

static inline void test_begin(int argc, char **argv)
{
    test_filter = argc > 1 ? argv[1] : NULL;
    test_stop = getenv("SLUICE_TEST_STOP") != NULL;
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
}

static inline int test_end(void)
{
    test_check_warnings();
    if (test_filter && !test_cases_run) {
        printf("no test of this program has a name with \"%s\"\n", test_filter);
        test_failures++;
    }
    printf("%d checks, %d failures\n", test_checks, test_failures);
    return test_failures != 0;
}

static inline void test_run(const char *name, void (*fn)(void))
{
    if (test_filter && !strstr(name, test_filter))
        return;
    int before = test_failures;
    test_cases_run++;
    fn();
    test_check_warnings();
    printf("%s %s\n", test_failures == before ? "ok  " : "FAIL", name);
    fflush(stdout);
}

#endif
