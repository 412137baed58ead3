/* Lines of progress fit the width they are given, whatever the values, and keep what matters most. */
#include "cli/progress.c"
#include "cli/show.c"
#include "test.h"

bool sl_cli_is_terminal(void)
{
    return false;
}

static char line[SL_CLI_LINE];

static const char *shown(const sl_cli_progress *p, int width)
{
    sl_cli_progress_line(p, width, line);
    CHECK_MSG((int) strlen(line) <= width, "%d columns for %d: %s", (int) strlen(line), width, line);
    return line;
}

static const sl_cli_progress typical = {.step = 120,
                                        .steps = 2400,
                                        .loss = 3.42104,
                                        .learning_rate = 3e-4,
                                        .tokens_per_s = 12345,
                                        .mfu = 0.381,
                                        .seconds_left = 3725,
                                        .device_bytes = (size_t) 12345 << 20};

TEST(a_typical_step)
{
    CHECK_I64(sl_cli_width(), 79);
    CHECK_STR(shown(&typical, 79), "step  120/2400  loss 3.4210  lr 3.0e-04  12,345 tok/s  MFU 38 %  left 1h02m");
    CHECK_STR(shown(&typical, 120),
              "step  120/2400  loss 3.4210  lr 3.0e-04  12,345 tok/s  MFU 38 %  device 12.1 GiB  left 1h02m");
    CHECK_STR(shown(&typical, 40), "step  120/2400  loss 3.4210  left 1h02m");
    CHECK_STR(shown(&typical, 20), "step  120/2400");
    CHECK_STR(shown(&typical, 9), "step  120");
}

TEST(an_extreme_step)
{
    sl_cli_progress p = {.step = 1000000,
                         .steps = 1000000,
                         .loss = 10.8249,
                         .learning_rate = 1e-10,
                         .tokens_per_s = 12345678,
                         .mfu = 1.01,
                         .seconds_left = 999.9 * 3600,
                         .device_bytes = (size_t) 1000 << 30,
                         .skipped = true};
    CHECK_STR(shown(&p, 79), "step 1000000/1000000  loss 10.8249 (skipped)  12,345,678 tok/s  left 999h54m");
    p.steps = 4000000000;
    p.step = 1;
    p.seconds_left = 1e9;
    CHECK_STR(shown(&p, 79), "step          1/4000000000  loss 10.8249 (skipped)  left 11574d");
}

TEST(every_width_and_value)
{
    static const double losses[] = {0, 3.5, 99999.9, 1e30, -1e300, NAN, INFINITY};
    static const double seconds[] = {0, 59.6, 3600, 1e7, 1e30, NAN, INFINITY};
    static const double speeds[] = {0, 0.001, 9.5, 1e4, 1e12};
    for (int width = 1; width <= 140; width++)
        for (int64_t l = 0; l < SL_COUNT(losses); l++)
            for (int64_t s = 0; s < SL_COUNT(seconds); s++)
                for (int64_t v = 0; v < SL_COUNT(speeds); v++) {
                    sl_cli_progress p = typical;
                    p.steps = l % 2 ? 10 : INT64_MAX;
                    p.loss = losses[l], p.seconds_left = seconds[s], p.tokens_per_s = speeds[v];
                    p.skipped = s % 2;
                    shown(&p, width);
                }
}

/* Columns are characters; what a terminal would take as a command becomes a space. */
TEST(a_sample)
{
    char long_text[3000] = "";
    sl_cli_sample_line(7, "a\nb", "c\x1b[2J  d\t\xc2\x9b\xc3\xa4\n", 79, line);
    CHECK_STR(line, "     after step 7: \"a b\"c [2J d \xc3\xa4 ");
    sl_cli_sample_line(7, "", "", 79, line);
    CHECK_STR(line, "     after step 7: ");
    for (int i = 0; i < 900; i++)
        snprintf(long_text + 3 * (size_t) i, 4, "\xe2\x82\xac");
    for (int width = 30; width < 200; width++) {
        int columns = 0;
        sl_cli_sample_line(7, long_text, long_text, width, line);
        for (const char *c = line; *c; c++)
            columns += ((unsigned char) *c & 0xc0) != 0x80;
        CHECK_MSG(columns <= width, "%d columns for %d", columns, width);
        CHECK(strlen(line) < sizeof line);
        CHECK_CONTAINS(line, "\xac\xe2\x80\xa6");
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(a_typical_step);
    RUN(an_extreme_step);
    RUN(every_width_and_value);
    RUN(a_sample);
    return test_end();
}
