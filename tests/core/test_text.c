/* Numbers in and out: exact, strict, and the same in every locale. */
#include "core/text.h"

#include <locale.h>
#include <wchar.h>

#include "core/fault.h"
#include "test.h"

TEST(bytes_are_read)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"1B", 1},
        {"24GiB", 24ull << 30},
        {"24 gib", 24ull << 30},
        {" 1.5 GB ", 1500000000},
        {"0.5KiB", 512},
        {"512MiB", 512ull << 20},
        {"2kB", 2000},
        {"3.25TiB", 13ull << 38},
        {"9007199254740993", 9007199254740993ull}, /* not a double */
        {"max", SIZE_MAX},
        {"Unlimited", SIZE_MAX},
    };
    for (int64_t i = 0; i < SL_COUNT(good); i++) {
        size_t bytes = 1;
        CHECK_OK(sl_parse_bytes(good[i].text, &bytes));
        CHECK_MSG(bytes == good[i].bytes, "%s: %zu, not %zu", good[i].text, bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",
                                      "GiB",
                                      "-1",
                                      "1e9",
                                      "24G",
                                      "0x10",
                                      "1 2",
                                      "nan",
                                      "1..5 GB",
                                      "1 GiB x",
                                      "99999999999999999999",
                                      "99999999PiB",
                                      "1.5.",
                                      ".5GiB"};
    for (int64_t i = 0; i < SL_COUNT(bad); i++) {
        size_t bytes = 77;
        CHECK_FAILS(sl_parse_bytes(bad[i], &bytes), SL_E_USAGE);
        CHECK_MSG(bytes == 77, "%s: output touched", bad[i]);
    }
}

TEST(budgets_are_read)
{
    static const struct {
        const char *text;
        size_t bytes;
        double share;
    } good[] = {{"40%", SIZE_MAX, 0.4},    {" 12.5 % ", SIZE_MAX, 0.125}, {"250%", SIZE_MAX, 2.5},
                {"0.1%", SIZE_MAX, 0.001}, {"64 MiB", 64 << 20, 0},       {"unlimited", SIZE_MAX, 0}};
    for (int64_t i = 0; i < SL_COUNT(good); i++) {
        sl_budget budget;
        CHECK_OK(sl_parse_budget(good[i].text, &budget));
        CHECK_MSG(budget.bytes == good[i].bytes, "%s: %zu bytes", good[i].text, budget.bytes);
        CHECK_NEAR(budget.share, good[i].share, 1e-12);
    }
    static const char *const bad[] = {"",
                                      "%",
                                      "40 %%",
                                      "0%",
                                      "-4%",
                                      "x%",
                                      "40% of it",
                                      "1e2%",
                                      "%40",
                                      "nan%",
                                      "+5%",
                                      "4 0 %",
                                      "1000001%",
                                      "0x4%",
                                      "40%40",
                                      "40MiB%",
                                      ".%",
                                      "0.00%",
                                      "99999999999999999999999%"};
    for (int64_t i = 0; i < SL_COUNT(bad); i++) {
        sl_budget budget = {77, 77};
        CHECK_FAILS(sl_parse_budget(bad[i], &budget), SL_E_USAGE);
        CHECK_MSG(budget.bytes == 77 && budget.share == 77, "%s: output touched", bad[i]);
    }
    CHECK_NEAR(sl_percent_up(1, 3), 33.4, 1e-9); /* as a budget it suffices */
    CHECK_NEAR(sl_percent_up(500, 1000), 50, 0);
    CHECK_NEAR(sl_percent_up(5, 0), 0, 0);
}

TEST(numbers_are_read)
{
    int64_t integer;
    double number;
    bool boolean;
    CHECK_OK(sl_parse_i64("524288", &integer));
    CHECK_I64(integer, 524288);
    CHECK_OK(sl_parse_i64("512k", &integer));
    CHECK_I64(integer, 524288);
    CHECK_OK(sl_parse_i64(" -1M", &integer));
    CHECK_I64(integer, -1048576);
    CHECK_OK(sl_parse_i64("9223372036854775807", &integer));
    CHECK_I64(integer, INT64_MAX);
    static const char *const bad_integers[] = {
        "", " ", "k", "1.5", "1kk", "1 k", "9223372036854775808", "9007199254740992k", "0x1"};
    for (int64_t i = 0; i < SL_COUNT(bad_integers); i++)
        CHECK_FAILS(sl_parse_i64(bad_integers[i], &integer), SL_E_USAGE);
    CHECK_OK(sl_parse_f64("3e-4", &number));
    CHECK(number == 3e-4);
    static const char *const bad_numbers[] = {"", "inf", "nan", "0x1p3", "1,5", "1e999", "1.5x", "--1"};
    for (int64_t i = 0; i < SL_COUNT(bad_numbers); i++)
        CHECK_FAILS(sl_parse_f64(bad_numbers[i], &number), SL_E_USAGE);
    CHECK_OK(sl_parse_bool("Yes", &boolean));
    CHECK(boolean);
    CHECK_OK(sl_parse_bool("off", &boolean));
    CHECK(!boolean);
    CHECK_FAILS(sl_parse_bool("maybe", &boolean), SL_E_USAGE);
}

TEST(numbers_are_shown)
{
    char out[32];
    CHECK_STR(sl_format_bytes(0, out), "0 B");
    CHECK_STR(sl_format_bytes(1023, out), "1023 B");
    CHECK_STR(sl_format_bytes(1024, out), "1.0 KiB");
    CHECK_STR(sl_format_bytes(25769803776, out), "24.0 GiB");
    CHECK_STR(sl_format_bytes((1 << 20) - 1, out), "1.0 MiB");
    CHECK_STR(sl_format_bytes(SIZE_MAX, out), "unlimited");
    CHECK_STR(sl_format_seconds(0.00123, out), "1.23 ms");
    CHECK_STR(sl_format_seconds(2.5, out), "2.5 s");
    CHECK_STR(sl_format_seconds(61, out), "1 min 01 s");
    CHECK_STR(sl_format_seconds(7260, out), "2 h 01 min");
    CHECK_STR(sl_format_seconds(45e-6, out), "45 us");
    CHECK_STR(sl_format_seconds(0.9996, out), "1 s"); /* not "1e+03 ms" */
    CHECK_STR(sl_format_seconds(0.9996e-3, out), "1 ms");
    CHECK_STR(sl_format_seconds(0.9995, out), "1 s");
    CHECK_STR(sl_format_seconds(0.9995e-3, out), "0.999 ms"); /* not "1e+03 us" */
    CHECK_STR(sl_format_seconds(0.9995e-6, out), "0.999 us");
    CHECK_STR(sl_format_bytes_up(8077568, out), "7.8 MiB");
    CHECK_STR(sl_format_bytes_up((size_t) 24 << 30, out), "24.0 GiB");
    CHECK_STR(sl_format_bytes_up(((size_t) 1 << 30) - 1, out), "1.0 GiB");
    CHECK_STR(sl_format_seconds(NAN, out), "-");
    CHECK_STR(sl_format_count(0, out), "0");
    CHECK_STR(sl_format_count(999, out), "999");
    CHECK_STR(sl_format_count(1234567, out), "1,234,567");
    CHECK_STR(sl_format_count(INT64_MIN, out), "-9,223,372,036,854,775,808");
    CHECK_STR(sl_format_f64(0.1, out), "0.1");
    CHECK_STR(sl_format_f64(1.0 / 3, out), "0.3333333333333333");
    CHECK_STR(sl_format_f64(1e300, out), "1e+300");
}

TEST(columns_are_characters)
{
    sl_text text = {0};
    CHECK_I64(sl_text_columns(""), 0);
    CHECK_I64(sl_text_columns("a\xe2\x80\x93\xc3\xbc\xf0\x9f\x99\x82."), 5); /* one to four bytes each */
    sl_text_pad(&text, "\xe2\x80\x93\xe2\x80\x93", 4, true);
    sl_text_pad(&text, "\xe2\x80\x93", 3, false);
    sl_text_pad(&text, "wide", 3, false);
    CHECK_STR(text.data, "  \xe2\x80\x93\xe2\x80\x93\xe2\x80\x93  wide");
    sl_text_free(&text);
}

/* Whether a locale with a decimal comma is in force: one that is installed, or one made here. */
static bool set_decimal_comma(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    char command[400];
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        if (setlocale(LC_NUMERIC, names[i]))
            return true;
    snprintf(command, sizeof command,
             "cd '%s' && printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \"\"\\ngrouping -1\\nEND "
             "LC_NUMERIC\\n' >comma.txt "
             "&& localedef -c -i ./comma.txt -f ANSI_X3.4-1968 ./comma >/dev/null 2>&1",
             test_dir());
    (void) !system(command); /* says 1 for the categories that are missing */
    setenv("LOCPATH", test_dir(), 1);
    return setlocale(LC_NUMERIC, "comma") != NULL;
}

TEST(a_decimal_comma_changes_nothing)
{
    double number;
    char out[32];
    if (!set_decimal_comma())
        printf("     no locale with a decimal comma here\n");
    CHECK_OK(sl_parse_f64("1.5", &number));
    CHECK(number == 1.5);
    CHECK_STR(sl_format_f64(2.25, out), "2.25");
    setlocale(LC_NUMERIC, "C");
}

/* `code` in `length` bytes, whether or not it should be. */
static void encode(uint32_t code, int length, char out[4])
{
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char) (0x80 | (code & 0x3f));
    out[0] = (char) (first[length] | code);
}

/* Every code of every length: only the shortest form of what is no surrogate and not above U+10FFFF counts. */
TEST(utf8_is_checked)
{
    static const uint32_t above[] = {0, 0x80, 0x800, 0x10000, 0x200000}; /* what fits in 1 to 4 bytes lies below */
    for (int length = 1; length <= 4; length++) {
        int64_t wrong = 0;
        for (uint32_t code = 0; code < above[length]; code++) {
            char bytes[4];
            bool valid = code >= above[length - 1] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
            encode(code, length, bytes);
            wrong += sl_utf8_length(bytes, bytes + length) != (valid ? length : 0);
            wrong += length > 1 && sl_utf8_length(bytes, bytes + length - 1) != 0;
            bytes[length - 1] ^= 0x40; /* no continuation */
            wrong += length > 1 && sl_utf8_length(bytes, bytes + length) != 0;
        }
        CHECK_MSG(wrong == 0, "%d bytes: %lld are not taken for what they are", length, (long long) wrong);
    }
    for (int byte = 0x80; byte < 0x100; byte++) { /* what begins none */
        char bytes[4] = {(char) byte, (char) 0x80, (char) 0x80, (char) 0x80};
        if (byte < 0xc2 || byte > 0xf4)
            CHECK_I64(sl_utf8_length(bytes, bytes + 4), 0);
    }
}

TEST(text_grows)
{
    sl_text text = {0};
    for (int i = 0; i < 1000; i++)
        sl_text_printf(&text, "%d,", i);
    sl_text_append(&text, "end", 3);
    CHECK_OK(sl_text_status(&text));
    CHECK_I64(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    CHECK(strncmp(text.data, "0,1,2,", 6) == 0);
    CHECK_STR(text.data + text.length - 7, "999,end");
    sl_text_free(&text);
    CHECK(text.data == NULL && text.length == 0);
}

/* What printf cannot write is a failure too, in an empty text and in another. */
TEST(a_failed_conversion_sticks)
{
    for (int i = 0; i < 2; i++) {
        sl_text text = {0};
        if (i)
            sl_text_printf(&text, "before");
        sl_text_printf(&text, "%lc", (wint_t) 0x7fffffff);
        sl_text_printf(&text, "after");
        CHECK_FAILS(sl_text_status(&text), SL_E_MEMORY);
        CHECK_U64(text.length, i ? strlen("before") : 0);
        sl_text_free(&text);
    }
}

TEST(a_failed_allocation_sticks)
{
    sl_text text = {0};
    sl_text_append(&text, "kept", 4);
    sl_fault_arm(SL_FAULT_ALLOC, 1);
    for (int i = 0; i < 100; i++)
        sl_text_append(&text, "0123456789", 10);
    sl_fault_arm(SL_FAULT_ALLOC, 0);
    CHECK_FAILS(sl_text_status(&text), SL_E_MEMORY);
    CHECK(strncmp(text.data, "kept", 4) == 0);
    sl_text_free(&text);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(bytes_are_read);
    RUN(budgets_are_read);
    RUN(numbers_are_read);
    RUN(numbers_are_shown);
    RUN(columns_are_characters);
    RUN(a_decimal_comma_changes_nothing);
    RUN(utf8_is_checked);
    RUN(text_grows);
    RUN(a_failed_conversion_sticks);
    RUN(a_failed_allocation_sticks);
    return test_end();
}
