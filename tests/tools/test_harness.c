/* The harness itself (test.h): what must fail a test program does. Each case is a program of its own, a child that ends with
 * test_end(). */
#include <sys/wait.h>

#include "core/log.h"
#include "test.h"

TEST(quiet)
{
}

TEST(announced)
{
    test_expect_warnings(2, "went");
    sl_warn("one went");
    sl_warn("two went");
}

TEST(any_number)
{
    test_expect_warnings(TEST_ANY, "went");
    sl_warn("one went");
}

TEST(unannounced)
{
    sl_warn("one went");
}

TEST(another_text)
{
    test_expect_warnings(1, "came");
    test_expect_warnings(TEST_ANY, "stayed");
    sl_warn("one came");
    sl_warn("one went");
}

TEST(one_too_many)
{
    test_expect_warnings(1, "went");
    sl_warn("one went");
    sl_warn("two went");
}

TEST(one_missing)
{
    test_expect_warnings(2, "went");
    sl_warn("one went");
}

TEST(failed_check)
{
    CHECK(test_checks < 0);
}

TEST(skipped)
{
    SKIP("no reason");
}

TEST(failed_check_and_on)
{
    CHECK(test_checks < 0);
    _exit(42);
}

typedef void (*test_case)(void);

/* The exit status of a program of these tests (up to the first NULL) with the given filter. */
static int run_program(const char *filter, test_case first, test_case second)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char name[] = "test", pattern[32] = "", *argv[] = {name, pattern, NULL};
        snprintf(pattern, sizeof pattern, "%s", filter ? filter : "");
        test_checks = test_failures = test_cases_run = test_warnings = test_unexpected = 0;
        if (!freopen("/dev/null", "w", stdout))
            _exit(99);
        test_begin(filter ? 2 : 1, argv);
        test_run("first", first);
        if (second)
            test_run("second", second);
        _exit(test_end());
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(warnings)
{
    CHECK_I64(run_program(NULL, test_case_quiet, NULL), 0);
    CHECK_I64(run_program(NULL, test_case_announced, test_case_any_number), 0);
    CHECK_I64(run_program(NULL, test_case_unannounced, NULL), 1);
    CHECK_I64(run_program(NULL, test_case_another_text, NULL), 1);
    CHECK_I64(run_program(NULL, test_case_one_too_many, NULL), 1);
    CHECK_I64(run_program(NULL, test_case_one_missing, NULL), 1);
}

TEST(an_announcement_ends_with_its_test)
{
    CHECK_I64(run_program(NULL, test_case_any_number, test_case_unannounced), 1);
    CHECK_I64(run_program(NULL, test_case_announced, test_case_announced), 0);
}

TEST(a_filter_must_match)
{
    CHECK_I64(run_program("seco", test_case_failed_check, test_case_quiet), 0);
    CHECK_I64(run_program("seco", test_case_quiet, test_case_failed_check), 1);
    CHECK_I64(run_program("third", test_case_quiet, test_case_quiet), 1);
    CHECK_I64(run_program("third", test_case_failed_check, NULL), 1);
}

TEST(skips)
{
    CHECK_I64(run_program(NULL, test_case_skipped, NULL), 77);
    CHECK_I64(run_program(NULL, test_case_failed_check, test_case_skipped), 1);
}

TEST(stops_where_asked_to)
{
    CHECK_I64(run_program(NULL, test_case_failed_check_and_on, NULL), 42);
    setenv("SLUICE_TEST_STOP", "1", 1);
    CHECK_I64(run_program(NULL, test_case_failed_check_and_on, NULL), 1);
    unsetenv("SLUICE_TEST_STOP");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(warnings);
    RUN(an_announcement_ends_with_its_test);
    RUN(a_filter_must_match);
    RUN(skips);
    RUN(stops_where_asked_to);
    return test_end();
}
