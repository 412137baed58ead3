/* Where things go on paper, and how numbers read. */
#include <float.h>

#include "report/chart.h"
#include "report/scale.h"
#include "test.h"

TEST(scales)
{
    sl_scale straight = {0, 10, 100, 200, false}, down = {0, 10, 200, 100, false}, log = {1, 100, 0, 100, true};
    CHECK_NEAR(sl_scale_at(&straight, 0), 100, 0);
    CHECK_NEAR(sl_scale_at(&straight, 2.5), 125, 1e-12);
    CHECK_NEAR(sl_scale_at(&straight, 99), 200, 0); /* stays inside */
    CHECK_NEAR(sl_scale_at(&straight, -99), 100, 0);
    CHECK_NEAR(sl_scale_at(&down, 2.5), 175, 1e-12);
    CHECK_NEAR(sl_scale_at(&log, 10), 50, 1e-12);
    CHECK(isnan(sl_scale_at(&log, 0)) && isnan(sl_scale_at(&log, -1)) && isnan(sl_scale_at(&straight, (double) NAN)));
    CHECK(isnan(sl_scale_at(&straight, (double) INFINITY)));
    sl_scale point = {3, 3, 0, 100, false};
    CHECK_NEAR(sl_scale_at(&point, 3), 50, 0);
}

TEST(ticks)
{
    double t[SL_MOST_TICKS];
    CHECK_I64(sl_ticks(0, 10, false, 6, t), 6);
    CHECK_NEAR(t[0], 0, 0);
    CHECK_NEAR(t[1], 2, 1e-12);
    CHECK_NEAR(t[5], 10, 1e-12);
    CHECK_I64(sl_ticks(0.13, 0.87, false, 5, t), 4); /* 0.2 0.4 0.6 0.8 */
    CHECK_NEAR(t[0], 0.2, 1e-12);
    CHECK_I64(sl_ticks(1, 1000, true, 6, t), 4);
    CHECK_NEAR(t[3], 1000, 1e-9);
    CHECK_I64(sl_ticks(40, 300, true, 6, t), 3); /* 50 100 200 */
    CHECK_NEAR(t[0], 50, 1e-9);
    CHECK_I64(sl_ticks(5, 5, false, 6, t), 1);
    CHECK_I64(sl_ticks((double) NAN, 5, false, 6, t), 0);
    CHECK_I64(sl_ticks(0, 1, false, 0, t), 0);
    for (int most = 1; most <= SL_MOST_TICKS + 5; most++) { /* never more than asked for, always inside */
        double low = -7.3e-5 * most, high = 9.1 * most;
        int n = sl_ticks(low, high, false, most, t);
        CHECK(n <= SL_MIN(most, SL_MOST_TICKS));
        for (int i = 0; i < n; i++)
            CHECK(t[i] >= low - 1e-9 && t[i] <= high + 1e-9 && (i == 0 || t[i] > t[i - 1]));
    }
    CHECK(sl_ticks(-DBL_MAX, DBL_MAX, false, 6, t) <= 6);
    CHECK(sl_ticks(1e-300, 1e300, true, 6, t) <= 6);
    CHECK(sl_ticks(1, nextafter(1, 2), false, 6, t) <= 6);
}

TEST(widen)
{
    double low = 3.1, high = 9.2;
    sl_widen(&low, &high, false, false);
    CHECK_NEAR(low, 2, 1e-9);
    CHECK_NEAR(high, 10, 1e-9);
    low = 3.1, high = 9.2;
    sl_widen(&low, &high, false, true);
    CHECK_NEAR(low, 0, 0);
    low = high = 4;
    sl_widen(&low, &high, false, false);
    CHECK(low < 4 && high > 4);
    low = high = 0;
    sl_widen(&low, &high, false, true);
    CHECK(high > low);
    low = (double) INFINITY, high = -(double) INFINITY; /* of nothing */
    sl_widen(&low, &high, true, false);
    CHECK(low > 0 && high > low);
    low = 0, high = 5;
    sl_widen(&low, &high, true, false);
    CHECK(low > 0 && high >= 5);
}

TEST(words)
{
    char t[32];
    CHECK_STR(sl_show(15525.4, t), "15,525");
    CHECK_STR(sl_show(0, t), "0");
    CHECK_STR(sl_show(0.23456, t), "0.235");
    CHECK_STR(sl_show(12.5, t), "12.5");
    CHECK_STR(sl_show(-3.14159, t), "-3.14");
    CHECK_STR(sl_show(1.2e-7, t), "1.20e-07");
    CHECK_STR(sl_show((double) NAN, t), "–");
    CHECK_STR(sl_show(1e300, t), "1.00e+300");
    CHECK_STR(sl_show_short(11406, t), "11.4k");
    CHECK_STR(sl_show_short(999.7, t), "1k");
    CHECK_STR(sl_show_short(3.5e11, t), "350G");
    CHECK_STR(sl_show_short(1e15, t), "1P");
    CHECK_STR(sl_show_short(0.25, t), "0.25");
    CHECK_STR(sl_show_as(0.2351, SL_SHARE, t), "23.5 %");
    CHECK_STR(sl_show_as(33554432, SL_BYTES, t), "32.0 MiB");
    CHECK_STR(sl_show_as(0.132, SL_SECONDS, t), "132 ms");
    CHECK_STR(sl_show_as(5.78e-4, SL_SECONDS, t), "578 µs");
    CHECK_STR(sl_show_as((double) INFINITY, SL_BYTES, t), "–");
    static const double odd[] = {1e308, -1e308, 5e-324, -0.0, 1e15, 999.9999, 0.00099999};
    for (int64_t i = 0; i < SL_COUNT(odd); i++)
        for (int q = SL_PLAIN; q <= SL_WHOLE; q++)
            CHECK(strlen(sl_show_as(odd[i], (sl_quantity) q, t)) < 32 && strlen(sl_show_short(odd[i], t)) < 32);
    char rate[64];
    CHECK_STR(sl_show_rate(1.31e11, "FLOP/s", rate), "131 GFLOP/s");
    CHECK_STR(sl_show_rate(20, "B/s", rate), "20 B/s");
    const char *label;
    CHECK_NEAR(sl_axis_unit(0x1p35, SL_BYTES, &label), 0x1p-30, 0);
    CHECK_STR(label, "GiB");
    CHECK_NEAR(sl_axis_unit(0.1, SL_SECONDS, &label), 1e3, 0);
    CHECK_STR(label, "ms");
}

TEST(escapes)
{
    sl_text text = {0};
    sl_html(&text, "<a href=\"x\">'&'\x01\x7f</a>é");
    CHECK_STR(text.data, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\xef\xbf\xbd\xef\xbf\xbd&lt;/a&gt;é");
    sl_text_free(&text);
}

/* Names of bars are never cut: one that is too long for its place wraps above the bars. */
TEST(bar_names)
{
    static const char *const names[] = {
        "short", "f32 matrix multiply 4096 x 1024 with a bias and an activation behind it, batch 512",
        "averyveryveryveryverylongwordthatnobodycanbreakanywhere_but_must_be_broken_somewhere",
        "größe ü größe ü größe ü größe ü größe ü größe"};
    sl_bar bars[4];
    for (int i = 0; i < 4; i++)
        bars[i] = (sl_bar){names[i], "s0", i + 1.0};
    for (int n = 1; n <= 4; n += 3) {
        sl_text out = {0};
        sl_draw_bars(&out, &(sl_bars){"bars", "ms", SL_PLAIN, bars, n}, 340);
        CHECK(!strstr(out.data, "…"));
        char joined[1024] = "";
        int labels = 0;
        double last_y = 0, height = 0;
        CHECK_I64(sscanf(out.data, "<svg viewBox=\"0 0 340 %lf\"", &height), 1);
        for (const char *at = out.data; (at = strstr(at, "<text ")); at++) {
            const char *class = strstr(at, "class=\""), *text = strchr(at, '>') + 1, *end = strstr(text, "</text>");
            char piece[256];
            double x, y;
            CHECK_I64(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
            CHECK(y > 0 && y < height);
            snprintf(piece, sizeof piece, "%.*s", (int) (end - text), text);
            if (strncmp(class, "class=\"lab\"", 11) != 0)
                continue;
            CHECK_MSG(sl_text_width(piece, 12) <= 340, "\"%s\" is too wide", piece);
            CHECK_MSG(y >= last_y + 12, "\"%s\" lies on the text above", piece);
            CHECK_MSG(sl_utf8_length(piece, piece + strlen(piece)) > 0, "\"%s\" begins inside a character", piece);
            strcat(joined, piece);
            last_y = y;
            labels++;
        }
        CHECK(n == 1 ? labels == 1 : labels >= 6);
        double width[4], x;
        int bar = 0;
        for (const char *at = out.data; (at = strstr(at, "<rect ")) && bar < 4; at++)
            CHECK_I64(sscanf(strstr(at, "x=\""), "x=\"%lf\" y=\"%*f\" width=\"%lf\"", &x, &width[bar++]), 2);
        CHECK_I64(bar, n);
        for (int i = 0; i < n; i++)
            CHECK_NEAR(width[i], width[n - 1] * (i + 1) / n, 0.11);
        CHECK(x + width[n - 1] <= 340);
        /* Nothing but the spaces where lines were broken is missing. */
        const char *got = joined;
        for (int i = 0; i < n; i++)
            for (const char *want = names[i]; *want; want++)
                if (*got == *want)
                    got++;
                else
                    CHECK_MSG(*want == ' ', "at \"%s\" there is \"%s\"", want, got);
        CHECK(*got == 0);
        sl_text_free(&out);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(scales);
    RUN(ticks);
    RUN(widen);
    RUN(words);
    RUN(escapes);
    RUN(bar_names);
    return test_end();
}
