/* Where drawings put things: positions are checked against the numbers they stand for. */
#include "logs.h"
#include "report/panels.h"
#include "report/report.h"

/* The n-th number behind each `key` in the text, in order. */
static int numbers_behind(const char *text, const char *key, double *out, int most)
{
    int n = 0;
    for (; n < most && (text = strstr(text, key)); text += strlen(key))
        out[n++] = strtod(text + strlen(key), NULL);
    return n;
}

/* Points of the first path of a class: "M1 2L3 4". */
static int path_points(const char *text, const char *class, double (*points)[2], int most)
{
    char key[64];
    snprintf(key, sizeof key, "<path class=\"%s\" d=\"", class);
    const char *at = strstr(text, key);
    int n = 0;
    REQUIRE(at != NULL);
    for (at += strlen(key); n < most && (*at == 'M' || *at == 'L'); n++) {
        char *end;
        points[n][0] = strtod(at + 1, &end);
        points[n][1] = strtod(end, &end);
        at = end;
    }
    return n;
}

#define PIXEL 0.11 /* coordinates have one digit */

TEST(lines)
{
    const double x[] = {0, 1, 4, 10}, y[] = {1, 3, 2, 5};
    double p[8][2];
    sl_text out = {0};
    sl_series series = {.name = "n", .color = "s0", .x = x, .y = y, .n = 4};
    sl_draw_lines(&out, &(sl_lines){.name = "m", .x_label = "x", .y_label = "y", .series = &series, .n_series = 1},
                  540);
    REQUIRE(path_points(out.data, "l s0", p, 8) == 4);
    CHECK(p[0][0] > 10 && p[3][0] > 500 && p[3][0] < 540);
    for (int i = 1; i < 4; i++) {
        CHECK_NEAR((p[i][0] - p[0][0]) / (p[3][0] - p[0][0]), x[i] / 10, 1e-3);
        CHECK_NEAR((p[0][1] - p[i][1]) / (p[0][1] - p[3][1]), (y[i] - 1) / 4, 1e-3); /* up is less */
    }
    CHECK(p[3][1] < p[0][1] && p[3][1] > 0 && p[0][1] < 260);
    sl_text_free(&out);
}

/* A gap in the numbers is a gap in the line. */
TEST(gaps)
{
    const double x[] = {0, 1, 2, 3}, y[] = {1, (double) NAN, 2, 3};
    sl_text out = {0};
    sl_series series = {.name = "n", .color = "s0", .x = x, .y = y, .n = 4};
    sl_draw_lines(&out, &(sl_lines){.name = "m", .x_label = "x", .y_label = "y", .series = &series, .n_series = 1},
                  540);
    const char *path = strstr(out.data, "<path class=\"l s0\" d=\"");
    REQUIRE(path != NULL);
    const char *second = strchr(strchr(path, 'M') + 1, 'M'), *end = strchr(strstr(path, " d=\"") + 4, '"');
    CHECK(second && second < end);
    sl_text_free(&out);
}

/* Of many points to a pixel the lowest and the highest are drawn: a single spike is seen. */
TEST(thinned)
{
    enum { N = 20000 };
    static double x[N], y[N], p[4000][2];
    sl_text out = {0};
    for (int i = 0; i < N; i++)
        x[i] = i, y[i] = 10 + (i % 2);
    y[7777] = 20;
    y[12345] = 0;
    sl_series series = {.name = "n", .color = "s0", .x = x, .y = y, .n = N};
    sl_draw_lines(&out, &(sl_lines){.name = "m", .x_label = "x", .y_label = "y", .series = &series, .n_series = 1},
                  540);
    int n = path_points(out.data, "l s0", p, 4000), high = 0, low = 0;
    CHECK_MSG(n > 500 && n < 1200, "%d points", n);
    for (int i = 0; i < n; i++) {
        high = p[i][1] < p[high][1] ? i : high;
        low = p[i][1] > p[low][1] ? i : low;
        CHECK(i == 0 || p[i][0] >= p[i - 1][0] - PIXEL);
    }
    double from = p[0][0], to = p[n - 1][0];
    CHECK_NEAR(p[high][0], from + (to - from) * 7777 / N, 1.1);
    CHECK_NEAR(p[low][0], from + (to - from) * 12345 / N, 1.1);
    sl_text_free(&out);
}

/* An op on the roof lies on its line; areas are as weights. */
TEST(roof)
{
    const sl_roof_point points[] = {
        {"ridge", "g-product", 10, 1e12, 4}, {"slope", "g-reduction", 1, 1e11, 1}, {"half", "g-product", 100, 5e11, 0}};
    double cx[8], cy[8], r[8], line[4][2];
    sl_text out = {0};
    sl_draw_roof(&out, &(sl_roof){"roof", 1e12, 1e11, points, 3}, 1110);
    CHECK_I64(numbers_behind(out.data, " cx=\"", cx, 8), 3);
    CHECK_I64(numbers_behind(out.data, " cy=\"", cy, 8), 3);
    CHECK_I64(numbers_behind(out.data, " r=\"", r, 8), 3);
    REQUIRE(path_points(out.data, "l c-roof", line, 4) == 3);
    CHECK_NEAR(cx[0], line[1][0], PIXEL);
    CHECK_NEAR(cy[0], line[1][1], PIXEL);
    CHECK_NEAR((cy[1] - line[1][1]) / (line[0][1] - line[1][1]), (cx[1] - line[1][0]) / (line[0][0] - line[1][0]),
               2e-3);
    double decade = cx[0] - cx[1]; /* logarithmic axes */
    CHECK_NEAR(cx[2] - cx[0], decade, 2 * PIXEL);
    CHECK_NEAR((cy[2] - cy[0]) / (cy[1] - cy[0]), log10(2), 2e-3);
    CHECK(line[0][0] < cx[1] && line[2][0] > cx[2] && decade > 50);
    CHECK_NEAR(r[0], 10.5, PIXEL);
    CHECK_NEAR(r[1], 7, PIXEL);
    CHECK_NEAR(r[2], 3.5, PIXEL);
    sl_text_free(&out);
    sl_draw_roof(&out, &(sl_roof){"roof", 1e12, 1e11, &points[1], 1},
                 1110); /* the ridge and what is right of it stay in the picture */
    REQUIRE(path_points(out.data, "l c-roof", line, 4) == 3);
    CHECK_I64(numbers_behind(out.data, " cx=\"", cx, 8), 1);
    CHECK(line[2][0] - line[1][0] > 0.6 * (line[1][0] - cx[0]));
    sl_text_free(&out);
}

TEST(parts)
{
    const sl_part p[] = {{"a", "s0", 3}, {"b", "s1", 0}, {"c", "s2", 1}};
    double x[8], width[8];
    sl_text out = {0};
    sl_draw_parts(&out, &(sl_parts){"parts", p, 3}, 400);
    CHECK_I64(numbers_behind(out.data, " x=\"", x, 8), 4); /* two bars, two shares on them */
    CHECK_I64(numbers_behind(out.data, " width=\"", width, 8), 2);
    CHECK_NEAR(width[0], 300, PIXEL);
    CHECK_NEAR(width[1], 100, PIXEL);
    CHECK_NEAR(x[0], 0, PIXEL);
    CHECK_NEAR(x[1], 150, PIXEL);
    CHECK_NEAR(x[2], 300, PIXEL);
    CHECK_CONTAINS(out.data, "<title>a: 75.0 %</title>");
    CHECK_CONTAINS(out.data, "<title>c: 25.0 %</title>");
    sl_text_free(&out);
}

TEST(heat)
{
    const double values[] = {1000, 2000, (double) NAN, 4000};
    const char *const x_names[] = {"x1", "x2"}, *const y_names[] = {"y1", "y2"};
    sl_text out = {0};
    sl_draw_heat(&out, &(sl_heat){"heat", "x", "y", x_names, y_names, values, 2, 2, SL_PLAIN}, 540);
    CHECK_CONTAINS(out.data, "<title>x1 × y1: 1,000</title>");
    CHECK_CONTAINS(out.data, "<title>x2 × y1: 2,000</title>");
    CHECK_CONTAINS(out.data, "<title>x1 × y2: does not fit</title>");
    CHECK_CONTAINS(out.data, "<title>x2 × y2: 4,000</title>");
    CHECK_CONTAINS(out.data, "fill=\"#31367c\"><title>x1 × y1"); /* the coldest, and the hottest */
    CHECK_CONTAINS(out.data, "fill=\"#f6e25c\"><title>x2 × y2");
    CHECK_CONTAINS(out.data, ">in thousands</text>");
    CHECK_CONTAINS(out.data, ">4.00</text>");
    sl_text_free(&out);
}

/* Lanes: 74 px for their names, 42 for their shares, time between. */
TEST(timeline)
{
    sl_text page = {0};
    sl_input *input = read_log(MADE_RUN "{\"event\":\"timeline\",\"t\":1,\"step\":3,\"first\":0,\"rows\":["
                                        "[\"compute\",\"matmul\",\"a\",\"forward\",0,0,1000,0,2000,0],"
                                        "[\"compute\",\"matmul\",\"b\",\"backward\",0,1000,2000,3000,4000,0],"
                                        "[\"in\",\"copy\",\"w\",\"copy\",-1,500,600,1000,2000,64]]}\n");
    sl_report_page(&page, (const sl_input *const[]){input}, 1);
    const char *panel = strstr(page.data, " id=\"timeline\"");
    REQUIRE(panel != NULL);
    CHECK_CONTAINS(panel, "The compute stream was busy 75.0 % of the step");
    static const struct {
        const char *class;
        double from, to; /* ns */
    } drawn[] = {{"p-forward", 0, 1000}, {"p-backward", 1000, 2000}, {"p-in", 500, 600},
                 {"p-forward", 0, 2000}, {"p-backward", 3000, 4000}, {"p-in", 1000, 2000}};
    const double unit = (1110 - 42 - 74) / 4000.0;
    const char *at = strstr(panel, "<svg viewBox=\"0 0 1110");
    REQUIRE(at != NULL);
    for (int64_t i = 0; i < SL_COUNT(drawn); i++) {
        char key[64];
        double x, width;
        snprintf(key, sizeof key, "<rect class=\"f %s\" x=\"", drawn[i].class);
        at = strstr(at, key);
        REQUIRE(at != NULL);
        CHECK_I64(sscanf(at + strlen(key), "%lf\" y=\"%*f\" width=\"%lf\"", &x, &width), 2);
        CHECK_MSG(fabs(x - (74 + drawn[i].from * unit)) < PIXEL, "%s begins at %.1f", drawn[i].class, x);
        CHECK_MSG(fabs(width - (drawn[i].to - drawn[i].from) * unit) < 0.6, "%s is %.1f wide", drawn[i].class, width);
        at += 10;
    }
    CHECK_CONTAINS(panel, ">75 %</text>");
    CHECK_CONTAINS(panel, ">25 %</text>"); /* copies in, as measured */
    sl_text_free(&page);
    sl_input_destroy(input);
}

/* More actions than can be seen: columns as pale as they are empty, each stream in its colour. */
TEST(timeline_in_columns)
{
    enum { N = 3000 };
    sl_text text = {0}, page = {0};
    sl_text_printf(&text, MADE_RUN "{\"event\":\"timeline\",\"t\":1,\"step\":3,\"first\":0,\"rows\":[");
    for (int i = 0; i < N; i++) /* compute is busy a third of the time, copies are two thirds */
        sl_text_printf(&text, "%s[\"%s\",\"x\",\"a\",\"%s\",0,%d,%d,%d,%d,0]", i ? "," : "",
                       i % 3 == 0   ? "compute"
                       : i % 3 == 1 ? "in"
                                    : "out",
                       i % 3 == 0 ? "backward" : "copy", 90 * (i / 3), 90 * (i / 3) + (i % 3 ? 60 : 30), 90 * (i / 3),
                       90 * (i / 3) + (i % 3 ? 60 : 30));
    sl_text_printf(&text, "]}\n");
    sl_input *input = read_log(text.data);
    sl_report_page(&page, (const sl_input *const[]){input}, 1);
    const char *panel = strstr(page.data, " id=\"timeline\"");
    REQUIRE(panel != NULL);
    static const char *const lanes[][2] = {{"<rect class=\"f p-backward\"", "\".45\""},
                                           {"<rect class=\"f p-in\"", "\".7\""},
                                           {"<rect class=\"f p-out\"", "\".7\""}};
    for (int64_t i = 0; i < SL_COUNT(lanes); i++) {
        const char *at = strstr(panel, lanes[i][0]), *opacity = at ? strstr(at, "opacity=\"") : NULL;
        CHECK_MSG(opacity && opacity < at + 100, "%s is not drawn in columns", lanes[i][0]);
        if (opacity)
            CHECK_CONTAINS(lanes[i][1], ((char[16]){opacity[8], opacity[9], opacity[10], opacity[11], 0}));
    }
    CHECK_CONTAINS(panel, "of it enlarged");
    sl_text_free(&text);
    sl_text_free(&page);
    sl_input_destroy(input);
}

/* A moment shows its fullest instant, not its last. */
TEST(fullest_moment)
{
    sl_memory moments[2];
    double peak;
    bool there;
    sl_input *input = read_log(MADE_RUN "{\"event\":\"timeline\",\"t\":1,\"step\":3,\"first\":0,\"rows\":["
                                        "[\"compute\",\"a\",\"a\",\"forward\",0,0,10,0,10,0],"
                                        "[\"compute\",\"b\",\"b\",\"forward\",0,10,20,10,20,0],"
                                        "[\"compute\",\"c\",\"c\",\"forward\",0,20,100,20,100,0]]}\n"
                                        "{\"event\":\"places\",\"t\":1,\"step\":3,\"first\":0,\"rows\":["
                                        "[\"device\",\"parameter\",100,-1,3],[\"device\",\"activation\",500,1,1],"
                                        "[\"device\",\"gradient\",300,2,2],[\"host\",\"data\",9000,-1,3]]}\n");
    CHECK_OK(sl_memory_over_time(input->log, 0, 2, moments, &peak, &there));
    CHECK(there);
    CHECK_NEAR(peak, 600, 0);
    CHECK_NEAR(moments[0].bytes[3], 500, 0);
    CHECK_NEAR(moments[0].bytes[1], 0, 0);
    CHECK_NEAR(moments[1].bytes[1], 300, 0);
    CHECK_NEAR(moments[1].bytes[0], 100, 0);
    sl_input_destroy(input);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(lines);
    RUN(gaps);
    RUN(thinned);
    RUN(roof);
    RUN(parts);
    RUN(heat);
    RUN(timeline);
    RUN(timeline_in_columns);
    RUN(fullest_moment);
    return test_end();
}
