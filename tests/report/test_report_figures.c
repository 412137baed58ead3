/*
 * Every figure that a reader can see, computed a second time: the test makes the numbers, writes the event log, and derives from the
 * numbers, not from what was read, what tiles, tables, JSON, CSV and trace must say.
 */
#include "core/rng.h"
#include "logs.h"
#include "report/report.h"
#include "wellformed.h"

enum { STEPS = 61, OPS = 5, ACTIONS = 40 };

typedef struct made_op {
    const char *name, *stream;
    int count;
    double predicted, measured, flops, bytes;
} made_op;

typedef struct made_run {
    double loss[STEPS], norm[STEPS], rate[STEPS], seconds[STEPS], data[STEPS], speed[STEPS], validation[STEPS];
    made_op ops[OPS];
    int64_t start[ACTIONS], end[ACTIONS], told_start[ACTIONS], told_end[ACTIONS]; /* told: predicted */
    int stream[ACTIONS];
    double mfu, hfu, peak, peak_told, budget, tokens;
} made_run;

static const char *const streams[] = {"compute", "in", "out", "host"};

static double draw(uint64_t i)
{
    return (double) (sl_philox(7, i, 1).v[0] >> 8) / (double) (1 << 24);
}

static void make_numbers(made_run *m)
{
    static const made_op ops[OPS] = {{"matmul", "compute", 12, 0, 0, 0, 0},
                                     {"rmsnorm", "compute", 7, 0, 0, 0, 0},
                                     {"attention", "compute", 3, 0, 0, 0, 0},
                                     {"adamw", "host", 5, 0, 0, 0, 0},
                                     {"copy in", "in", 9, 0, 0, 0, 0}};
    uint64_t n = 0;
    for (int i = 0; i < STEPS; i++) {
        m->loss[i] = 2 + 3 * draw(n++);
        m->norm[i] = 1 + draw(n++);
        m->rate[i] = 1e-3 * draw(n++);
        m->seconds[i] = 0.1 + draw(n++);
        m->data[i] = 0.01 * draw(n++);
        m->speed[i] = 1000 * draw(n++);
        m->validation[i] = i % 20 == 19 ? 3 + draw(n++) : -1;
    }
    for (int i = 0; i < OPS; i++) {
        m->ops[i] = ops[i];
        m->ops[i].predicted = 0.02 * (1 + draw(n++));
        m->ops[i].measured = 0.02 * (1 + draw(n++));
        m->ops[i].flops = i < 3 ? 1e9 * (1 + draw(n++)) : 0;
        m->ops[i].bytes = 1e8 * (1 + draw(n++));
    }
    for (int i = 0; i < ACTIONS; i++) {
        m->stream[i] = i % 4;
        m->start[i] = 1000000 * i + (int64_t) (1e5 * draw(n++));
        m->end[i] = m->start[i] + (int64_t) (1e5 * draw(n++));
        m->told_start[i] = 900000 * i;
        m->told_end[i] = m->told_start[i] + (int64_t) (1e5 * draw(n++));
    }
    m->mfu = 0.371, m->hfu = 0.413, m->peak = 123456789, m->peak_told = 120000000, m->budget = 200000000,
    m->tokens = 4096;
}

static void write_log(const made_run *m, sl_text *out)
{
    sl_text_printf(out, "{\"event\":\"run\",\"t\":0,\"model\":\"m\",\"tokens_per_step\":4096,\"first_step\":0}\n");
    sl_text_printf(out,
                   "{\"event\":\"plan\",\"t\":0,\"step_s\":0.5,\"tokens_per_s\":8192,\"device_peak_bytes\":%.17g,"
                   "\"device_budget_bytes\":%.17g,\"hardware\":{\"peak_flops\":1e12,\"memory_bandwidth\":1e11}}\n",
                   m->peak_told, m->budget);
    for (int i = 0; i < STEPS; i++) {
        sl_text_printf(
            out,
            "{\"event\":\"step\",\"t\":1,\"step\":%d,\"loss\":%.17g,\"grad_norm\":%.17g,\"learning_rate\":%.17g,"
            "\"seconds\":%.17g,\"data_s\":%.17g,\"tokens_per_s\":%.17g}\n",
            i + 1, m->loss[i], m->norm[i], m->rate[i], m->seconds[i], m->data[i], m->speed[i]);
        if (m->validation[i] >= 0)
            sl_text_printf(out, "{\"event\":\"validation\",\"t\":1,\"step\":%d,\"loss\":%.17g}\n", i + 1,
                           m->validation[i]);
    }
    sl_text_printf(out, "{\"event\":\"timeline\",\"t\":2,\"step\":%d,\"first\":0,\"rows\":[", STEPS);
    for (int i = 0; i < ACTIONS; i++)
        sl_text_printf(out, "%s[\"%s\",\"matmul\",\"a%d\",\"forward\",0,%lld,%lld,%lld,%lld,64]", i ? "," : "",
                       streams[m->stream[i]], i, (long long) m->told_start[i], (long long) m->told_end[i],
                       (long long) m->start[i], (long long) m->end[i]);
    sl_text_printf(out,
                   "]}\n{\"event\":\"end\",\"t\":3,\"reason\":\"done\",\"mfu\":%.17g,\"hfu\":%.17g,\"step_s\":%.17g,"
                   "\"tokens_per_s\":99,\"device_peak_bytes\":%.17g,\"device_budget_bytes\":%.17g,\"ops\":[",
                   m->mfu, m->hfu, m->seconds[STEPS - 1], m->peak, m->budget);
    for (int i = 0; i < OPS; i++)
        sl_text_printf(
            out,
            "%s{\"op\":\"%s\",\"stream\":\"%s\",\"count\":%d,\"predicted_s\":%.17g,\"measured_s\":%.17g,\"flops\":"
            "%.17g,\"bytes\":%.17g}",
            i ? "," : "", m->ops[i].name, m->ops[i].stream, m->ops[i].count, m->ops[i].predicted, m->ops[i].measured,
            m->ops[i].flops, m->ops[i].bytes);
    sl_text_printf(out, "]}\n");
}

/* Of all steps but the first: 60 of them, so the mean of the 30th and the 31st. */
static double median_seconds(const made_run *m)
{
    for (int i = 1; i < STEPS; i++) {
        int below = 0;
        double next = 1e9;
        for (int k = 1; k < STEPS; k++) {
            below += m->seconds[k] < m->seconds[i];
            if (m->seconds[k] > m->seconds[i] && m->seconds[k] < next)
                next = m->seconds[k];
        }
        if (below == (STEPS - 1) / 2 - 1)
            return (m->seconds[i] + next) / 2;
    }
    return -1;
}

static int64_t busy(const made_run *m, int stream, bool predicted)
{
    int64_t ns = 0;
    for (int i = 0; i < ACTIONS; i++)
        if (m->stream[i] == stream)
            ns += predicted ? m->told_end[i] - m->told_start[i] : m->end[i] - m->start[i];
    return ns;
}

/* The text of the element with this id that stands between <b> and </b>. */
static void check_tile(const char *page, const char *id, double want, const char *unit)
{
    char key[64], *end;
    snprintf(key, sizeof key, "id=\"tile-%s\"><b>", id);
    const char *at = strstr(page, key);
    REQUIRE(at != NULL);
    char digits[64] = "";
    int n = 0;
    for (at += strlen(key); *at && *at != '<' && *at != ' ' && n < 60; at++)
        if (*at != ',')
            digits[n++] = *at;
    double shown = strtod(digits, &end);
    CHECK_MSG(*end == 0 && fabs(shown - want) <= 0.0051 * fabs(want), "tile %s shows %s, and is %g", id, digits, want);
    CHECK_MSG(strncmp(at, unit, strlen(unit)) == 0, "tile %s has no unit %s: %.20s", id, unit, at);
}

static sl_input *input_of(const made_run *m)
{
    sl_text text = {0};
    write_log(m, &text);
    sl_input *input = read_log(text.data);
    sl_text_free(&text);
    return input;
}

static const sl_json *figures_of(sl_region *region, const char *page)
{
    const char *at = strstr(page, "class=\"figures\">"), *end = at ? strstr(at, "</script>") : NULL;
    const sl_json *root = NULL;
    REQUIRE(at && end);
    at += strlen("class=\"figures\">");
    CHECK_OK(sl_json_parse(region, "figures", at, (size_t) (end - at), &root));
    return root;
}

static double member(const sl_json *object, const char *key)
{
    const sl_json *value = sl_json_get(object, key);
    REQUIRE(value && value->kind == SL_JSON_NUMBER);
    return value->number;
}

TEST(tiles_and_figures)
{
    made_run m;
    sl_text page = {0};
    sl_region *region;
    make_numbers(&m);
    sl_input *input = input_of(&m);
    sl_report_page(&page, (const sl_input *const[]){input}, 1);
    CHECK(!wellformed(page.data) && !finite_numbers(page.data));
    double step = median_seconds(&m);
    REQUIRE(step > 0);
    check_tile(page.data, "speed", m.tokens / step, "</b>");
    check_tile(page.data, "step", 1e3 * step, " ms");
    check_tile(page.data, "mfu", 100 * m.mfu, " %");
    check_tile(page.data, "device-memory", m.peak / (1 << 20), " MiB");
    check_tile(page.data, "last-loss", m.loss[STEPS - 1], "</b>");
    CHECK_CONTAINS(page.data, "HFU 41.3 %");
    CHECK_CONTAINS(page.data, "budget 190.7 MiB");
    CHECK_OK(sl_region_create(&region));
    const sl_json *f = figures_of(region, page.data);
    CHECK_NEAR(member(f, "step_s"), step, 1e-15);
    CHECK_NEAR(member(f, "tokens_per_s"), m.tokens / step, 1e-9);
    CHECK_NEAR(member(f, "predicted_step_s"), 0.5, 0);
    CHECK_NEAR(member(f, "mfu"), m.mfu, 0);
    CHECK_NEAR(member(f, "device_peak_bytes"), m.peak, 0);
    CHECK_NEAR(member(f, "steps"), STEPS, 0);
    CHECK_NEAR(member(f, "last_loss"), m.loss[STEPS - 1], 0);
    for (int s = 0; s < 4; s++) {
        CHECK_NEAR(member(sl_json_get(f, "busy_ns"), streams[s]), (double) busy(&m, s, false), 0);
        CHECK_NEAR(member(sl_json_get(f, "predicted_busy_ns"), streams[s]), (double) busy(&m, s, true), 0);
    }
    /* Above the ridge of 10 FLOP/B only what has more FLOP than ten times its bytes. */
    double parts[2] = {0, 0}, data = 0;
    for (int i = 0; i < 3; i++)
        parts[m.ops[i].flops < 10 * m.ops[i].bytes] += m.ops[i].measured;
    for (int i = 1; i < STEPS; i++)
        data += m.data[i] / (STEPS - 1);
    double whole = m.seconds[STEPS - 1] - m.data[STEPS - 1] + data;
    const sl_json *shares = sl_json_get(f, "shares");
    CHECK_NEAR(member(shares, "compute"), parts[0] / whole, 1e-12);
    CHECK_NEAR(member(shares, "memory bandwidth"), parts[1] / whole, 1e-12);
    CHECK_NEAR(member(shares, "I/O"), data / whole, 1e-12);
    CHECK_NEAR(member(shares, "overhead"), (whole - parts[0] - parts[1] - data) / whole, 1e-12);
    sl_region_destroy(region);
    sl_input_destroy(input);
    sl_text_free(&page);
}

/* The n-th cell of an op's row, as a number; units behind it are checked. */
static void check_cell(const char *row, int column, double want, const char *unit, const char *what)
{
    const char *at = row, *row_end = strstr(row, "</tr>");
    for (int i = 0; i < column; i++)
        at = strstr(at + 1, "<td");
    REQUIRE(at && at < row_end);
    const char *end = strstr(at, "</td>"), *from = end;
    while (from[-1] != '>')
        from--;
    char text[64] = "";
    int n = 0;
    for (; from < end && n < 60; from++)
        if (*from != ',')
            text[n++] = *from;
    char *rest;
    double shown = strtod(text, &rest);
    CHECK_MSG(rest != text && fabs(shown - want) <= 0.0051 * fabs(want) + 0.051 * (*unit == '%'),
              "%s, column %d: \"%s\", and is %g", what, column, text, want);
    rest += strspn(rest, " ");
    CHECK_MSG(strcmp(rest, unit) == 0, "%s, column %d: \"%s\" has no unit \"%s\"", what, column, text, unit);
}

TEST(table_of_ops)
{
    made_run m;
    sl_text page = {0};
    make_numbers(&m);
    sl_input *input = input_of(&m);
    sl_report_page(&page, (const sl_input *const[]){input}, 1);
    const char *table = strstr(page.data, " id=\"ops\"");
    REQUIRE(table != NULL);
    double all = 0, before = 1e9;
    for (int i = 0; i < OPS; i++)
        all += m.ops[i].measured;
    const char *last = table;
    for (int done = 0; done < OPS; done++) { /* longest first */
        int longest = -1;
        for (int i = 0; i < OPS; i++)
            if (m.ops[i].measured < before && (longest < 0 || m.ops[i].measured > m.ops[longest].measured))
                longest = i;
        const made_op *op = &m.ops[longest];
        char key[64];
        before = op->measured;
        snprintf(key, sizeof key, "<th scope=\"row\">%s", op->name);
        const char *row = strstr(last, key);
        REQUIRE(row != NULL);
        last = row;
        check_cell(row, 2, op->count, "", op->name);
        check_cell(row, 3, 1e3 * op->measured, "ms", op->name);
        check_cell(row, 4, 100 * op->measured / all, "%", op->name);
        check_cell(row, 5, 1e3 * op->measured / op->count, "ms", op->name);
        check_cell(row, 6, 1e3 * op->predicted, "ms", op->name);
        if (op->flops > 0)
            check_cell(row, 7, 1e-9 * op->flops / op->measured, "", op->name);
        check_cell(row, 8, 1e-9 * op->bytes / op->measured, "", op->name);
        if (op->flops > 0)
            check_cell(row, 9, op->flops / op->bytes, "", op->name);
        const char *end = strstr(row, "</tr>"), *bound = strcmp(op->stream, "in") == 0 ? "link<"
                                                         : op->flops < 10 * op->bytes  ? "memory<"
                                                                                       : "compute<";
        CHECK_MSG(strstr(row, bound) && strstr(row, bound) < end, "%s is bound by %s", op->name, bound);
    }
    sl_input_destroy(input);
    sl_text_free(&page);
}

/* Predicted, measured, and how far off. */
TEST(table_of_figures)
{
    made_run m;
    sl_text page = {0};
    make_numbers(&m);
    sl_input *input = input_of(&m);
    sl_report_page(&page, (const sl_input *const[]){input}, 1);
    const char *table = strstr(page.data, " id=\"figures\"");
    REQUIRE(table != NULL);
    const char *row = strstr(table, "<th scope=\"row\">device memory, highest address");
    REQUIRE(row != NULL);
    check_cell(row, 1, m.peak_told / (1 << 20), "MiB", "memory");
    check_cell(row, 2, m.peak / (1 << 20), "MiB", "memory");
    check_cell(row, 3, 100 * (m.peak / m.peak_told - 1), "%", "memory");
    row = strstr(table, "<th scope=\"row\">compute busy");
    REQUIRE(row != NULL);
    check_cell(row, 1, 1e-3 * (double) busy(&m, 0, true), "µs", "busy");
    check_cell(row, 2, 1e-3 * (double) busy(&m, 0, false), "µs", "busy");
    row = strstr(table, "<th scope=\"row\">step<");
    REQUIRE(row != NULL);
    check_cell(row, 1, 500, "ms", "step");
    check_cell(row, 2, 1e3 * m.seconds[STEPS - 1], "ms", "step");
    sl_input_destroy(input);
    sl_text_free(&page);
}

/* Every number of the CSV reads back as the one that was logged. */
TEST(csv_of_a_run)
{
    made_run m;
    sl_text csv = {0};
    make_numbers(&m);
    sl_input *input = input_of(&m);
    sl_report_csv(&csv, input);
    const char *at = csv.data;
    static const char head[] = "step,loss,grad_norm,learning_rate,seconds,data_s,tokens_per_s,validation_loss\r\n";
    CHECK(strncmp(at, head, sizeof head - 1) == 0);
    at += sizeof head - 1;
    for (int i = 0; i < STEPS; i++) {
        const double want[] = {i + 1, m.loss[i], m.norm[i], m.rate[i], m.seconds[i], m.data[i], m.speed[i]};
        char *end;
        for (int64_t k = 0; k < SL_COUNT(want); k++) {
            CHECK_NEAR(strtod(at, &end), want[k], 0);
            CHECK(*end == ',');
            at = end + 1;
        }
        if (m.validation[i] >= 0) {
            CHECK_NEAR(strtod(at, &end), m.validation[i], 0);
            at = end;
        }
        CHECK(strncmp(at, "\r\n", 2) == 0);
        at += 2;
    }
    CHECK(*at == 0);
    sl_text_free(&csv);
    sl_input_destroy(input);
}

TEST(trace_of_a_run)
{
    made_run m;
    sl_text trace = {0};
    sl_region *region;
    const sl_json *root;
    int64_t sums[2][4] = {{0}};
    int events = 0;
    make_numbers(&m);
    sl_input *input = input_of(&m);
    CHECK_OK(sl_report_trace(&trace, input));
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "trace", trace.data, trace.length, &root));
    for (const sl_json *e = sl_json_get(root, "traceEvents")->child; e; e = e->next) {
        if (strcmp(sl_json_get(e, "ph")->string, "X") != 0)
            continue;
        int i = atoi(sl_json_get(e, "name")->string + 1), process = (int) sl_json_get(e, "pid")->integer - 1;
        events++;
        CHECK_I64(sl_json_get(e, "tid")->integer, m.stream[i] + 1);
        CHECK_I64(llround(1000 * member(e, "ts")), process ? m.told_start[i] : m.start[i]);
        sums[process][m.stream[i]] += llround(1000 * member(e, "dur"));
    }
    CHECK_I64(events, 2 * ACTIONS);
    for (int s = 0; s < 4; s++) {
        CHECK_I64(sums[0][s], busy(&m, s, false));
        CHECK_I64(sums[1][s], busy(&m, s, true));
    }
    sl_region_destroy(region);
    sl_input_destroy(input);
    sl_text_free(&trace);
}

/* ---- spreadsheets ---- */

/* A text must come out quoted, with a ' before what a spreadsheet would run; numbers stay numbers. */
TEST(csv_that_a_spreadsheet_would_run)
{
    static const struct {
        const char *json, *csv;
    } cases[] = {
        {"=1+1", "\"'=1+1\""},
        {"+1", "\"'+1\""},
        {"-1", "\"'-1\""},
        {"@SUM(A1)", "\"'@SUM(A1)\""},
        {"\\t=1+1", "\"'\t=1+1\""},
        {"\\r=1+1", "\"'\r=1+1\""},
        {"\\n=1+1", "\"'\n=1+1\""},
        {"=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""},
        {"=\\\"a\\\"", "\"'=\"\"a\"\"\""},
        {"a=1", "a=1"},
        {"a-b+c@d", "a-b+c@d"},
        {"a,b", "\"a,b\""},
        {"a\\nb", "\"a\nb\""},
        {"a\\rb", "\"a\rb\""},
        {"say \\\"hi\\\"", "\"say \"\"hi\"\"\""},
        {"'quoted", "'quoted"},
        {"", ""},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_text json = {0}, csv = {0}, want = {0};
        /* As a column's name, and as a cell. */
        sl_text_printf(&json, "{\"kind\":\"bench\",\"columns\":[\"%s\",\"n\"],\"rows\":[[\"%s\",-1.5],[\"x\",1e-7]]}",
                       cases[i].json, cases[i].json);
        sl_text_printf(&want, "%s,n\r\n%s,-1.5\r\nx,1e-07\r\n", cases[i].csv, cases[i].csv);
        sl_input *input = read_log(json.data);
        sl_report_csv(&csv, input);
        CHECK_STR(csv.data, want.data);
        sl_input_destroy(input);
        sl_text_free(&json);
        sl_text_free(&csv);
        sl_text_free(&want);
    }
}

TEST(csv_of_negative_numbers)
{
    sl_text csv = {0};
    sl_input *input =
        read_log("{\"event\":\"step\",\"t\":0,\"step\":1,\"loss\":-0.25,\"grad_norm\":null,\"learning_rate\":-1e-9,"
                 "\"seconds\":1,\"tokens_per_s\":-3}\n");
    sl_report_csv(&csv, input);
    CHECK_CONTAINS(csv.data, "\r\n1,-0.25,,-1e-09,1,0,-3,\r\n");
    sl_text_free(&csv);
    sl_input_destroy(input);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(tiles_and_figures);
    RUN(table_of_ops);
    RUN(table_of_figures);
    RUN(csv_of_a_run);
    RUN(trace_of_a_run);
    RUN(csv_that_a_spreadsheet_would_run);
    RUN(csv_of_negative_numbers);
    return test_end();
}
