/* Curves over the steps, the parts of a run that was resumed, and runs beside each other. */
#include "logs.h"
#include "report/curves.h"
#include "report/report.h"
#include "report/sessions.h"
#include "wellformed.h"

static sl_text page_of(const char *const *texts, int64_t count)
{
    sl_text page = {0};
    sl_input *inputs[16];
    char path[64];
    for (int64_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "runs/r%d/events.jsonl", (int) i + 1);
        CHECK_OK(sl_input_parse(path, texts[i], strlen(texts[i]), &inputs[i]));
    }
    sl_report_page(&page, (const sl_input *const *) inputs, count);
    CHECK_OK(sl_text_status(&page));
    const char *why = wellformed(page.data);
    CHECK_MSG(!why, "%s", why);
    why = finite_numbers(page.data);
    CHECK_MSG(!why, "%s", why);
    for (int64_t i = 0; i < count; i++)
        sl_input_destroy(inputs[i]);
    return page;
}

static void put_run(sl_text *out, int64_t first, const char *options)
{
    sl_text_printf(out,
                   "{\"event\":\"run\",\"t\":0,\"model\":\"made\",\"tokens_per_step\":100,\"first_step\":%lld,"
                   "\"options\":{\"steps\":100%s}}\n",
                   (long long) first, options);
}

static void put_plan(sl_text *out, const char *device, const char *host, double predicted)
{
    sl_text_printf(out,
                   "{\"event\":\"plan\",\"t\":0,\"tokens_per_s\":%g,\"device_budget_bytes\":%s,"
                   "\"host_budget_bytes\":%s}\n",
                   predicted, device, host);
}

static void put_steps(sl_text *out, int from, int to, double speed)
{
    for (int i = from; i <= to; i++)
        sl_text_printf(out,
                       "{\"event\":\"step\",\"t\":1,\"step\":%d,\"loss\":%g,\"grad_norm\":%g,\"learning_rate\":%g,"
                       "\"seconds\":%g,\"tokens_per_s\":%g}\n",
                       i, 5.0 / i, 2.0 + 1.0 / i, 1e-3 * i, 100 / speed, i == from ? speed / 10 : speed);
}

/* The slice of the page from `from` to the end of that section. */
static sl_text section(const sl_text *page, const char *id)
{
    char key[64];
    sl_text out = {0};
    snprintf(key, sizeof key, " id=\"%s\">", id);
    const char *at = strstr(page->data, key), *end = at ? strstr(at, "</section>") : NULL;
    CHECK_MSG(at && end, "there is no section %s", id);
    if (at && end)
        sl_text_append(&out, at, (size_t) (end - at));
    else
        sl_text_printf(&out, "-");
    return out;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

TEST(smoothing)
{
    /* By hand: window 4 keeps 0.75; weights of values k back are 0.25 * 0.75^k, divided by their sum. */
    const double values[] = {8, (double) NAN, 4, 0, 16};
    double smooth[5];
    sl_smooth(values, 5, 4, smooth);
    CHECK_NEAR(smooth[0], 8, 1e-12);
    CHECK_NEAR(smooth[1], 8, 1e-12); /* nothing new */
    CHECK_NEAR(smooth[2], (0.75 * 8 + 4) / 1.75, 1e-12);
    CHECK_NEAR(smooth[3], (0.5625 * 8 + 0.75 * 4) / (0.5625 + 0.75 + 1), 1e-12);
    CHECK_NEAR(smooth[4], (0.421875 * 8 + 0.5625 * 4 + 16) / (0.421875 + 0.5625 + 0.75 + 1), 1e-12);
    sl_smooth(&values[1], 1, 4, smooth);
    CHECK(isnan(smooth[0]));
    CHECK_NEAR(sl_smoothing_window(10), 4, 0);
    CHECK_NEAR(sl_smoothing_window(200), 4, 0);
    CHECK_NEAR(sl_smoothing_window(1000), 20, 0);
}

/* What is smoothed says so, and how; what is not does not. */
TEST(smoothed_is_labelled)
{
    for (int steps = SL_SMOOTHED_FROM - 1; steps <= SL_SMOOTHED_FROM; steps++) {
        bool smoothed = steps >= SL_SMOOTHED_FROM;
        sl_text text = {0};
        put_run(&text, 0, "");
        put_steps(&text, 1, steps, 50);
        sl_text page = page_of((const char *const[]){text.data}, 1), loss = section(&page, "loss"),
                norm = section(&page, "grad-norm");
        CHECK(!strstr(loss.data, "moving mean"));
        CHECK((strstr(loss.data, "<h2>Smoothed loss went from 5 to ") != NULL) == smoothed);
        CHECK((strstr(loss.data, "exponential moving average over about 4 steps") != NULL) == smoothed);
        CHECK((strstr(norm.data, "exponential moving average over about 4 steps") != NULL) == smoothed);
        CHECK((strstr(loss.data, "<span>smoothed</span>") != NULL) == smoothed);
        CHECK_I64(count_of(loss.data, " faint\" d=\"M"), smoothed ? 3 : 0); /* legend, wide, narrow */
        sl_text_free(&text);
        sl_text_free(&page);
        sl_text_free(&loss);
        sl_text_free(&norm);
    }
}

TEST(norm_and_rate)
{
    sl_text text = {0};
    put_run(&text, 0, ",\"clip\":2.4");
    put_steps(&text, 1, 10, 50); /* norms 3, 2.5, 2.33, ... */
    sl_text page = page_of((const char *const[]){text.data}, 1), norm = section(&page, "grad-norm"),
            rate = section(&page, "learning-rate");
    CHECK_CONTAINS(norm.data, "Gradient norm: 2 of 10 steps were clipped at 2.4");
    CHECK_CONTAINS(norm.data, "clipped above");
    CHECK_CONTAINS(rate.data, "Learning rate: 0.01 at most, 0.01 at the end");
    CHECK_CONTAINS(rate.data, "<title>3: 0.003</title>");
    CHECK_CONTAINS(norm.data, "<title>2: 2.5</title>");
    sl_text_free(&text);
    sl_text_free(&page);
    sl_text_free(&norm);
    sl_text_free(&rate);
    put_run(&text, 0, "");
    put_steps(&text, 1, 10, 50);
    page = page_of((const char *const[]){text.data}, 1);
    CHECK_CONTAINS(page.data, "Gradient norm: 2.1 at the last step");
    CHECK(!strstr(page.data, "clipped above"));
    sl_text_free(&page);
    sl_text_free(&text);
    /* A log that has neither. */
    sl_text_printf(&text, "{\"event\":\"step\",\"t\":0,\"step\":1,\"loss\":2}\n");
    page = page_of((const char *const[]){text.data}, 1);
    CHECK(!strstr(page.data, "id=\"grad-norm\"") && !strstr(page.data, "id=\"learning-rate\""));
    CHECK(!strstr(page.data, "id=\"sessions\""));
    sl_text_free(&page);
    sl_text_free(&text);
}

TEST(resumed_under_another_budget)
{
    sl_text text = {0};
    put_run(&text, 0, "");
    put_plan(&text, "33554432", "null", 60);
    put_steps(&text, 1, 8, 50);
    put_run(&text, 5, ""); /* under the same budget; steps 6 to 8 are lost */
    put_plan(&text, "33554432", "null", 60);
    put_steps(&text, 6, 10, 40);
    put_run(&text, 10, ""); /* killed before a step */
    put_plan(&text, "1024", "null", 60);
    put_run(&text, 10, ""); /* another device budget */
    put_plan(&text, "67108864", "null", 90);
    put_steps(&text, 11, 14, 80);
    put_run(&text, 14, ""); /* another host budget */
    put_plan(&text, "67108864", "1048576", 90);
    put_steps(&text, 15, 15, 70);
    sl_input *input = read_log(text.data);
    sl_run_log *log = input->log;
    REQUIRE(log->n_sessions == 4);
    static const int64_t firsts[] = {0, 5, 10, 14}, lasts[] = {5, 10, 14, 15};
    static const double speeds[] = {50, 40, 80, 7}, device[] = {33554432, 33554432, 67108864, 67108864};
    static const bool changed[] = {false, false, true, true};
    for (int64_t i = 0; i < 4; i++) {
        CHECK_I64(log->sessions[i].first_step, firsts[i]);
        CHECK_I64(sl_session_last_step(log, i), lasts[i]);
        CHECK_NEAR(sl_session_speed(log, i), speeds[i], 0);
        CHECK_NEAR(log->sessions[i].budget_bytes[0], device[i], 0);
        CHECK_I64(sl_session_changed(log, i), changed[i]);
    }
    CHECK(isinf(log->sessions[2].budget_bytes[1]));
    CHECK_NEAR(log->sessions[3].budget_bytes[1], 1048576, 0);
    sl_session_marks marks;
    sl_session_marks_of(log, &marks);
    REQUIRE(marks.n == 2);
    CHECK_NEAR(marks.marks[0].x, 10.5, 0);
    CHECK_STR(marks.marks[0].text, "device 64.0 MiB");
    CHECK_NEAR(marks.marks[1].x, 14.5, 0);
    CHECK_STR(marks.marks[1].text, "host 1.0 MiB");
    sl_input_destroy(input);
    sl_text page = page_of((const char *const[]){text.data}, 1), table = section(&page, "sessions");
    CHECK_CONTAINS(table.data, "3 resumes, 2 with another budget");
    CHECK_CONTAINS(table.data,
                   "<th scope=\"row\">1 to 5</th><td class=\"n\">32.0 MiB</td><td class=\"n\">unlimited</td>"
                   "<td class=\"n extra\">60</td><td class=\"n\">50</td>");
    CHECK_CONTAINS(table.data,
                   "<th scope=\"row\">11 to 14</th><td class=\"n\"><b>64.0 MiB</b></td><td class=\"n\">unlimited</td>"
                   "<td class=\"n extra\">90</td><td class=\"n\">80</td>");
    CHECK_CONTAINS(table.data,
                   "<th scope=\"row\">15 to 15</th><td class=\"n\">64.0 MiB</td><td class=\"n\"><b>1.0 MiB</b></td>");
    static const char *const panels[] = {"loss", "throughput", "grad-norm", "learning-rate"};
    for (int64_t i = 0; i < SL_COUNT(panels); i++) {
        sl_text panel = section(&page, panels[i]);
        CHECK_CONTAINS(panel.data, "resumed with another budget");
        CHECK_I64(count_of(panel.data, "<line class=\"event\""), 1 + 2 * 2); /* legend, wide, narrow */
        CHECK_CONTAINS(panel.data, ">device 64.0 MiB</text>");
        sl_text_free(&panel);
    }
    sl_text_free(&table);
    sl_text_free(&page);
    sl_text_free(&text);
}

/* The predicted speed is that of each session's own plan. */
TEST(predictions_of_sessions)
{
    sl_text text = {0};
    put_run(&text, 0, "");
    put_plan(&text, "null", "null", 60);
    put_steps(&text, 1, 2, 50);
    put_run(&text, 2, "");
    put_plan(&text, "null", "null", 120);
    put_steps(&text, 3, 4, 50);
    sl_text page = page_of((const char *const[]){text.data}, 1), speed = section(&page, "throughput");
    const char *line = strstr(speed.data, "dash d1\" d=\"");
    REQUIRE(line != NULL);
    double x[4], y[4];
    CHECK_I64(sscanf(line, "dash d1\" d=\"M%lf %lfL%lf %lfM%lf %lfL%lf %lf\"", &x[0], &y[0], &x[1], &y[1], &x[2], &y[2],
                     &x[3], &y[3]),
              8);
    CHECK(x[0] < x[1] && x[1] < x[2] && x[2] < x[3]);
    CHECK_NEAR(y[0], y[1], 0);
    CHECK_NEAR(y[2], y[3], 0);
    CHECK(y[2] < y[0]); /* faster is higher */
    CHECK(!strstr(speed.data, "class=\"event\""));
    sl_text_free(&text);
    sl_text_free(&page);
    sl_text_free(&speed);
}

/* Runs in one chart: a number, a pattern and a colour for each. */
TEST(compared)
{
    sl_text texts[3] = {{0}};
    const char *data[3];
    for (int i = 0; i < 3; i++) {
        put_run(&texts[i], 0, "");
        put_plan(&texts[i], i ? "33554432" : "null", "null", 60);
        put_steps(&texts[i], 1, 10 + 2 * i, 50 + 10 * i);
        data[i] = texts[i].data;
    }
    sl_text page = page_of(data, 3);
    CHECK_CONTAINS(page.data, "<h1>3 runs compared</h1>");
    static const char *const charts[] = {"compare-loss", "compare-throughput", "compare-grad-norm",
                                         "compare-learning-rate"};
    for (int64_t i = 0; i < SL_COUNT(charts); i++) {
        sl_text chart = section(&page, charts[i]);
        CHECK_CONTAINS(chart.data, "<b>1</b> <span>runs/r1</span>");
        CHECK_CONTAINS(chart.data, "<b>3</b> <span>runs/r3</span>");
        for (int k = 1; k <= 3; k++) {
            char part[64];
            snprintf(part, sizeof part, "class=\"mark\">%d</text>", k);
            CHECK_I64(count_of(chart.data, part), 2); /* wide and narrow */
        }
        CHECK_CONTAINS(chart.data, "<path class=\"l s0\" d=\"M");
        CHECK_CONTAINS(chart.data, "<path class=\"l s3 d1\" d=\"M");
        CHECK_CONTAINS(chart.data, "<path class=\"l s2 d2\" d=\"M");
        sl_text_free(&chart);
    }
    sl_text table = section(&page, "compared");
    CHECK_CONTAINS(table.data, "1 runs/r1</th>");
    CHECK_CONTAINS(table.data, "<td class=\"n\">10</td><td class=\"n\">0.5</td><td class=\"n\">50</td>");
    CHECK_CONTAINS(table.data, "<td class=\"n\">14</td><td class=\"n\">0.357</td><td class=\"n\">70</td>");
    CHECK_CONTAINS(table.data, "unlimited");
    CHECK_CONTAINS(table.data, "32.0 MiB");
    CHECK_I64(count_of(page.data, " id=\"throughput\""), 3); /* each run's own section is there too */
    sl_text_free(&table);
    sl_text_free(&page);
    /* One run is compared with nothing, nor is a run with a table. */
    page = page_of(data, 1);
    CHECK(!strstr(page.data, "id=\"comparison\""));
    sl_text_free(&page);
    page = page_of((const char *const[]){data[0], "{\"kind\":\"bench\",\"columns\":[\"a\"],\"rows\":[[1]]}"}, 2);
    CHECK(!strstr(page.data, "id=\"comparison\""));
    sl_text_free(&page);
    /* Two are enough, and so is a step. */
    sl_text one = {0};
    put_run(&one, 0, "");
    put_steps(&one, 1, 1, 50);
    page = page_of((const char *const[]){data[0], one.data}, 2);
    CHECK_CONTAINS(page.data, "<h1>2 runs compared</h1>");
    CHECK_CONTAINS(page.data, "2 runs/r2</th>");
    sl_text_free(&page);
    sl_text_free(&one);
    for (int i = 0; i < 3; i++)
        sl_text_free(&texts[i]);
}

/* Marks that would lie on each other move along their lines. */
TEST(marks_keep_apart)
{
    double x[40], y[40];
    sl_series series[6];
    sl_text out = {0};
    for (int i = 0; i < 40; i++)
        x[i] = i, y[i] = 1;
    for (int s = 0; s < 6; s++) /* all on the same line, the last ones short */
        series[s] =
            (sl_series){.name = "n", .color = "s0", .x = x, .y = y, .n = s < 3 ? 40 : 16, .dash = s % 4, .mark = "7"};
    sl_draw_lines(&out, &(sl_lines){.name = "m", .x_label = "x", .y_label = "y", .series = series, .n_series = 6}, 540);
    double at[6];
    int n = 0;
    for (const char *mark = out.data; (mark = strstr(mark, "class=\"mark\"")) && n < 6; mark++) {
        const char *begin = mark;
        while (strncmp(begin, "<text x=\"", 9) != 0)
            begin--;
        at[n++] = strtod(begin + 9, NULL);
    }
    CHECK_I64(n, 6);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            CHECK_MSG(fabs(at[i] - at[k]) >= 14, "marks at %.1f and %.1f", at[i], at[k]);
    sl_text_free(&out);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(smoothing);
    RUN(smoothed_is_labelled);
    RUN(norm_and_rate);
    RUN(resumed_under_another_budget);
    RUN(predictions_of_sessions);
    RUN(compared);
    RUN(marks_keep_apart);
    return test_end();
}
