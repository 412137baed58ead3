/* Pages, traces and CSV of everything that can be read: whole logs, cut logs, empty ones, huge ones, ones full of odd names and
 * numbers. Every page is well formed, asks for nothing from elsewhere, and says what the log says. */
#include <time.h>

#include "logs.h"
#include "report/panels.h"
#include "report/report.h"
#include "wellformed.h"

/* The page of a file's text; well formed, or the test fails. Free it. */
static sl_text page_of(const char *text)
{
    sl_text page = {0};
    sl_input *input = read_log(text);
    sl_report_page(&page, (const sl_input *const[]){input}, 1);
    CHECK_OK(sl_text_status(&page));
    const char *why = wellformed(page.data);
    CHECK_MSG(!why, "%s", why);
    CHECK_MSG(!strstr(page.data, "http://") && !strstr(page.data, "https://") && !strstr(page.data, "url("), "a link");
    const char *none = strstr(page.data, "nan") ? strstr(page.data, "nan") : strstr(page.data, "inf\"");
    CHECK_MSG(!none, "a number that is none: %.80s", none - 40);
    sl_input_destroy(input);
    return page;
}

static void check_page(const char *text, const char *const *parts, int64_t count)
{
    sl_text page = page_of(text);
    for (int64_t i = 0; i < count; i++)
        CHECK_MSG(strstr(page.data, parts[i]) != NULL, "the page has no %s", parts[i]);
    sl_text_free(&page);
}

#define CHECK_PAGE(text, ...) \
    check_page(text, (const char *const[]){__VA_ARGS__}, SL_COUNT(((const char *const[]){__VA_ARGS__})))

TEST(wellformed_itself)
{
    CHECK(!wellformed("<a b=\"c\"><d/>e &lt;</a>"));
    CHECK(wellformed("<a>") && wellformed("<a></b>") && wellformed("a & b") && wellformed("<a b=c></a>") &&
          wellformed("</a>"));
    CHECK(wellformed("<a b=\"<\"></a>") && wellformed("a < b") && wellformed("a > b") && wellformed("a\x01"));
}

#define ROWS(first, rows)                                                                                             \
    "{\"event\":\"timeline\",\"t\":1,\"step\":3,\"first\":" #first ",\"count\":4,\"columns\":[],\"rows\":[" rows "]}" \
    "\n"
#define ACTIONS                                                                                                        \
    ROWS(0, "[\"in\",\"copy\",\"w\",\"copy\",-1,0,100,0,200,64],[\"compute\",\"matmul\",\"a\",\"forward\",0,100,1100," \
            "200,1300,0]")                                                                                             \
    ROWS(2, "[\"compute\",\"matmul\",\"a\",\"recompute\",0,1100,1600,1300,1700,0],"                                    \
            "[\"out\",\"copy\",\"g\",\"copy\",-1,1600,1700,1700,2000,64]")
#define PLACES                                                                                                         \
    "{\"event\":\"places\",\"t\":1,\"step\":3,\"first\":0,\"count\":4,\"rows\":[[\"device\",\"parameter\",1000,-1,4]," \
    "[\"device\",\"activation\",500,1,2],[\"device\",\"workspace\",300,2,2],[\"host\",\"optimizer\",700,-1,4]]}\n"

TEST(a_run)
{
    sl_text text = {0};
    make_log(&(made_step){.matmul_s = 0.8, .norm_s = 0.1}, &text);
    sl_text_printf(&text, ACTIONS PLACES);
    CHECK_PAGE(text.data, "<h1>made on cpu test</h1>", "id=\"limit\" data-limit=\"compute\"", "id=\"timeline\"",
               "id=\"memory-device\"", "id=\"memory-host\"", "id=\"loss\"", "id=\"throughput\"", "id=\"roofline\"",
               "id=\"ops\"", "id=\"figures\"", "<div class=\"tile\" id=\"tile-speed\"><b>2,048</b>", "<b>1 s</b>",
               "<b>25.0 %</b>", "<b>2.5</b>", "budget 2.0 KiB", "\"limit\":\"compute\"", "predicted",
               "prefers-color-scheme:dark", "@media print", "viewBox", "reduction");
    sl_text_free(&text);
}

TEST(times_and_memory)
{
    sl_text text = {0}, trace = {0};
    sl_memory moments[10];
    double peak;
    bool there;
    sl_text_printf(&text, MADE_RUN ACTIONS PLACES);
    sl_input *input = read_log(text.data);
    CHECK_I64(sl_report_busy_ns(input->log, 0, false), 1500);
    CHECK_I64(sl_report_busy_ns(input->log, 0, true), 1500);
    CHECK_I64(sl_report_busy_ns(input->log, 1, false), 200);
    CHECK_I64(sl_report_busy_ns(input->log, 2, false), 300);
    CHECK_I64(sl_log_end_ns(input->log, false), 2000);
    CHECK_I64(sl_log_end_ns(input->log, true), 1700);
    CHECK_OK(sl_memory_over_time(input->log, 0, 10, moments, &peak, &there));
    CHECK(there);
    CHECK_NEAR(peak, 1800, 0);
    CHECK_NEAR(moments[0].bytes[0], 1000, 0);
    CHECK_NEAR(moments[0].bytes[3], 0, 0);   /* the activation comes at 200 ns, */
    CHECK_NEAR(moments[1].bytes[3], 500, 0); /* in the second tenth */
    CHECK_NEAR(moments[5].bytes[6], 0, 0);
    CHECK_NEAR(moments[6].bytes[6], 300, 0); /* 1300 ns to 1700 ns */
    CHECK_NEAR(moments[8].bytes[6] + moments[9].bytes[6], 300, 0);
    CHECK_NEAR(moments[9].bytes[3], 0, 0);
    CHECK_OK(sl_report_trace(&trace, input));
    sl_region *region;
    const sl_json *root;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "trace", trace.data, trace.length, &root));
    double busy[2] = {0};
    for (const sl_json *e = sl_json_get(root, "traceEvents")->child; e; e = e->next)
        if (strcmp(sl_json_get(e, "ph")->string, "X") == 0 && sl_json_get(e, "tid")->integer == 1)
            busy[sl_json_get(e, "pid")->integer - 1] += sl_json_get(e, "dur")->number;
    CHECK_NEAR(busy[0], 1.5, 1e-12);
    CHECK_NEAR(busy[1], 1.5, 1e-12);
    sl_region_destroy(region);
    sl_input_destroy(input);
    sl_text_free(&text);
    sl_text_free(&trace);
}

TEST(next_to_nothing)
{
    CHECK_PAGE(MADE_RUN, "made on cpu test", "no end in the log");
    CHECK_PAGE(MADE_RUN MADE_PLAN, "Limited by compute", "(predicted)");
    CHECK_PAGE(MADE_RUN MADE_PLAN
               "{\"event\":\"step\",\"t\":1,\"step\":1,\"loss\":3.5,\"seconds\":0.5,\"tokens_per_s\":4096}\n",
               "<b>4,096</b>", "loss at step 1");
    /* Under way: half as fast as predicted, so half the MFU. */
    CHECK_PAGE(MADE_RUN MADE_PLAN
               "{\"event\":\"step\",\"t\":1,\"step\":1,\"loss\":3.5,\"seconds\":2,\"tokens_per_s\":1024}\n",
               "id=\"tile-mfu\"><b>25.0 %</b>");
    /* Two steps: no mean to tell, and nothing between them. */
    CHECK_PAGE(MADE_RUN "{\"event\":\"step\",\"t\":1,\"step\":1,\"loss\":3.5,\"seconds\":0.5,\"tokens_per_s\":4096}\n"
                        "{\"event\":\"step\",\"t\":2,\"step\":2,\"loss\":2.5,\"seconds\":0.5,\"tokens_per_s\":4096}\n",
               "Loss went from 3.5 to 2.5", ">1</text>", ">2</text>");
    /* The last line is being written. */
    CHECK_PAGE(MADE_RUN "{\"event\":\"step\",\"t\":1,\"st", "has no end");
    /* All losses are NaN. */
    CHECK_PAGE(MADE_RUN "{\"event\":\"step\",\"t\":1,\"step\":1,\"loss\":null,\"seconds\":0.5}\n", "loss at step 1");
    CHECK_PAGE("{\"event\":\"something new\",\"t\":0}\n", "A run on an unknown device");
}

TEST(odd_names_and_numbers)
{
    CHECK_PAGE(
        "{\"event\":\"run\",\"t\":0,\"model\":\"<script>&\\\"'\\u0001\",\"numerics\":\"</"
        "title>\",\"tokens_per_step\":1}\n"
        "{\"event\":\"plan\",\"t\":0,\"limit\":\"<i>\",\"step_s\":1e308,\"tokens_per_s\":1e308,\"mfu\":-1e308,"
        "\"device_peak_bytes\":1e300,\"device_budget_bytes\":-5,\"hardware\":{\"name\":\"<&\",\"peak_flops\":1e308,"
        "\"memory_bandwidth\":1e-308}}\n"
        "{\"event\":\"step\",\"t\":0,\"step\":9223372036854775807,\"loss\":-1e308,\"seconds\":1e-308,\"tokens_per_s\":"
        "1e308}\n"
        "{\"event\":\"step\",\"t\":0,\"step\":0,\"loss\":1e308,\"seconds\":-1,\"tokens_per_s\":-1e308}\n"
        "{\"event\":\"end\",\"t\":0,\"ops\":[{\"op\":\"<b>\",\"measured_s\":1e308,\"flops\":1e308,\"bytes\":1e-308},"
        "{\"op\":\"y\",\"measured_s\":-1,\"flops\":-1,\"bytes\":1}]}\n"
        "{\"event\":\"timeline\",\"t\":0,\"rows\":[[\"compute\",\"<op>\",\"a\\\"b\",\"forward\",0,0,99000000000000000,"
        "5,5,0]]}\n"
        "{\"event\":\"places\",\"t\":0,\"rows\":[[\"device\",\"data\",1000000000000000000,-9,9223372036854775807]]}\n",
        "&lt;script&gt;&amp;&quot;&#39;", "&lt;/title&gt;");
}

TEST(resumed)
{
    sl_text text = {0};
    sl_text_printf(&text, MADE_RUN);
    for (int i = 1; i <= 6; i++)
        sl_text_printf(&text,
                       "{\"event\":\"step\",\"t\":1,\"step\":%d,\"loss\":%d,\"seconds\":1}\n"
                       "{\"event\":\"validation\",\"t\":1,\"step\":%d,\"loss\":%d}\n",
                       i, 10 * i, i, i);
    sl_text_printf(&text, "{\"event\":\"run\",\"t\":0,\"model\":\"made\",\"first_step\":4}\n");
    for (int i = 5; i <= 7; i++)
        sl_text_printf(&text, "{\"event\":\"step\",\"t\":1,\"step\":%d,\"loss\":%d,\"seconds\":3}\n", i, 100 * i);
    sl_input *input = read_log(text.data);
    CHECK_I64(input->log->n_steps, 7);
    CHECK_I64(input->log->n_validations, 4); /* those of the lost steps are lost */
    CHECK_I64(input->log->validations[3].step, 4);
    CHECK_NEAR(sl_log_median_step(input->log), 3, 0); /* of the plan that the page shows */
    CHECK_NEAR(input->log->steps[3].loss, 40, 0);
    CHECK_NEAR(input->log->steps[4].loss, 500, 0);
    CHECK_I64(input->log->steps[6].step, 7);
    sl_input_destroy(input);
    sl_text_free(&text);
}

/* 100,000 steps, and a step of 100,000 actions: in seconds, and a page that still opens. */
/* ---- samples ---- */

#define SAMPLE "{\"event\":\"sample\",\"t\":1,\"step\":%d,\"prompt\":\"<b>\",\"text\":\"%s\",\"stop\":\"%s\"}\n"

static void make_samples(int first, int last, sl_text *text)
{
    sl_text_printf(text, MADE_RUN);
    for (int i = first; i <= last; i++) {
        sl_text_printf(text, "{\"event\":\"step\",\"t\":1,\"step\":%d,\"loss\":%d,\"seconds\":1}\n", i, i);
        sl_text_printf(text, SAMPLE, i, "</td><script>\\u0000", "length");
    }
    sl_text_printf(text, SAMPLE, last + 1, "\\u001b[2J & \\u202e\\n\\\"so\\\"", "end");
}

TEST(samples)
{
    sl_text text = {0}, page = {0}, longest = {0};
    make_samples(1, 3, &text);
    CHECK_PAGE(text.data, "id=\"samples\"", "What the model writes</h2>", "dir=\"auto\"><i>&lt;b&gt;</i>",
               "&lt;/td&gt;&lt;script&gt;</td>",
               "</i>\xef\xbf\xbd[2J &amp; \xe2\x80\xae\n&quot;so&quot; <small>(the end)");
    /* A resumed run: samples of lost steps are lost. Then a log that tells little, and very long texts. */
    sl_text_printf(&text, "{\"event\":\"run\",\"t\":0,\"first_step\":2}\n{\"event\":\"sample\",\"step\":3}\n");
    for (int i = 0; i < 1500; i++)
        sl_text_printf(&longest, "\xe2\x82\xac");
    sl_text_printf(&text, SAMPLE, 4, longest.data, "not finite");
    sl_input *input = read_log(text.data);
    CHECK_I64(input->log->n_samples, 4);
    CHECK_STR(input->log->samples[2].text, "");
    CHECK_I64((int64_t) strlen(input->log->samples[3].text), 4500);
    sl_report_page(&page, (const sl_input *const[]){input, input}, 2);
    CHECK_OK(sl_text_status(&page));
    CHECK_MSG(!wellformed(page.data), "%s", wellformed(page.data));
    CHECK_CONTAINS(page.data, "id=\"compare-samples\"");
    CHECK_CONTAINS(page.data, "\xe2\x82\xac… <small>(the weights yield no further token)");
    sl_input_destroy(input);
    sl_text_free(&text);
    make_samples(1, 100, &text);
    CHECK_PAGE(text.data, "12 of 101 samples", ">101</th>", ">8</th>");
    sl_text_free(&text);
    sl_text_free(&page);
    sl_text_free(&longest);
}

TEST(huge)
{
    sl_text text = {0};
    clock_t start = clock(); /* processor time: other programs are no business of this test's */
    sl_text_printf(&text, MADE_RUN MADE_PLAN);
    for (int i = 1; i <= 100000; i++)
        sl_text_printf(&text,
                       "{\"event\":\"step\",\"t\":1,\"step\":%d,\"loss\":%.3f,\"seconds\":1,\"tokens_per_s\":%d}\n", i,
                       5 - 1e-5 * i, 2000 + i % 7);
    for (int i = 0; i < 100000; i += 100) {
        sl_text_printf(&text, "{\"event\":\"timeline\",\"t\":1,\"step\":9,\"first\":%d,\"rows\":[", i);
        for (int k = 0; k < 100; k++)
            sl_text_printf(&text, "%s[\"%s\",\"matmul\",\"layers.%d\",\"%s\",%d,%d,%d,%d,%d,0]", k ? "," : "",
                           k % 3 ? "compute" : "in", k, k % 3 ? k % 2 ? "backward" : "recompute" : "copy", i,
                           (i + k) * 1000, (i + k) * 1000 + 900, (i + k) * 1010, (i + k) * 1010 + 900);
        sl_text_printf(&text, "]}\n");
    }
    for (int i = 0; i < 100000; i += 100) {
        sl_text_printf(&text, "{\"event\":\"places\",\"t\":1,\"first\":%d,\"rows\":[", i);
        for (int k = 0; k < 100; k++)
            sl_text_printf(&text, "%s[\"device\",\"%s\",%d,%d,%d]", k ? "," : "", k % 2 ? "activation" : "gradient",
                           100 + k, i + k, i + k + 50);
        sl_text_printf(&text, "]}\n");
    }
    sl_text page = page_of(text.data);
    CHECK_MSG(page.length < 3 << 20, "the page has %zu bytes", page.length);
    CHECK_CONTAINS(page.data, "id=\"timeline\"");
    CHECK_CONTAINS(page.data, "id=\"memory-device\"");
    double took = (double) (clock() - start) / CLOCKS_PER_SEC;
    CHECK_MSG(took < 60, "it took %.1f s", took);
    sl_text_free(&page);
    sl_text_free(&text);
}

/* ---- tables ---- */

TEST(tables)
{
    CHECK_PAGE("{\"kind\":\"bench\",\"name\":\"flops\",\"machine\":{\"cpu\":\"<x>\",\"threads\":2},\"columns\":[{"
               "\"name\":\"patches\"},"
               "{\"name\":\"a_gflop\",\"unit\":\"GFLOP\"},{\"name\":\"b_gflop\",\"unit\":\"GFLOP\"}],\"rows\":[[49,2.4,"
               "2.6],[196,9.4,9.9],"
               "[12544,3443.9,623]],\"notes\":[\"a & b\"]}",
               "id=\"flop-scaling\"", "<td class=\"n\">3,444</td>", "a &amp; b", "&lt;x&gt;");
    CHECK_PAGE(
        "{\"kind\":\"bench\",\"name\":\"ops\",\n\"columns\":[{\"name\":\"op\",\"unit\":\"\"},{\"name\":\"gbps\","
        "\"unit\":\"GB/s\"},"
        "{\"name\":\"gflops\",\"unit\":\"GFLOP/s\"}],\n\"rows\":[{\"op\":\"matmul\",\"gbps\":3.5,\"gflops\":100},"
        "{\"op\":\"add\",\"gbps\":9,\"gflops\":null}]}\n",
        "id=\"roofline-1\"", "the best kernel reaches 100 GFLOP/s", "matmul", "<td class=\"n\">–</td>");
    CHECK_PAGE(
        "{\"kind\":\"bench\",\"name\":\"x\",\"tables\":[{\"name\":\"t\",\"title\":\"Bars\",\"columns\":[\"who\",{"
        "\"name\":\"time\","
        "\"unit\":\"ms\"}],\"rows\":[[\"one\",1.5],[\"two\",3]]},{\"name\":\"u\",\"columns\":[\"c\"],\"rows\":[]}]}",
        "id=\"bars-1\"", "id=\"table-2\"", "0 rows.", "<td class=\"n\">1.5</td>", "3 ms");
    CHECK_PAGE("{\"kind\":\"bench\",\"name\":\"lm\",\"columns\":[{\"name\":\"dtype\"},{\"name\":\"ctx\"},{\"name\":"
               "\"ms\",\"unit\":\"ms\"}],"
               "\"rows\":[[\"f32\",128,1],[\"f32\",256,2],[\"f32\",512,4],[\"bf16\",128,0.5],[\"bf16\",256,1],["
               "\"bf16\",512,2]]}",
               "id=\"lines-1-1\"", "bf16");
    /* A grid: lines go over the longer side, at one value of the other. */
    CHECK_PAGE(
        "{\"kind\":\"bench\",\"name\":\"attention\",\"columns\":[{\"name\":\"dim\"},{\"name\":\"seqlen\"},{\"name\":"
        "\"ms\",\"unit\":\"ms\"}],\"rows\":[[16,1,1],[16,2,2],[16,3,3],[16,4,4],[32,1,5],[32,2,6],[32,3,7],[32,4,8],"
        "[64,1,9],[64,2,10],[64,3,11],[64,4,12]]}",
        "id=\"lines-1-1\"", "With dim 32; the table has the others.", ">seqlen</text>");
}

#define SWEEP                                                                                                        \
    "{\"event\":\"sweep\",\"t\":0,\"kind\":\"sweep\",\"name\":\"m\",\"identity\":\"x\",\"columns\":[{\"name\":"      \
    "\"cell\"},"                                                                                                     \
    "{\"name\":\"model\"},{\"name\":\"seqlen\"},{\"name\":\"device_budget_bytes\",\"unit\":\"B\"},{\"name\":\"host_" \
    "budget_bytes\","                                                                                                \
    "\"unit\":\"B\"},{\"name\":\"tokens_per_s\"},{\"name\":\"mfu\",\"unit\":\"share\"}]}\n"
#define CELL(key, device, host, rest)                                                                               \
    "{\"event\":\"cell\",\"t\":1,\"cell\":\"" key "\",\"model\":\"m\",\"seqlen\":8,\"device_budget_bytes\":" device \
    ",\"host_budget_bytes\":" host rest "}\n"

/* A file of several benches' lines: every note, each fact once, a lone table with its title. */
TEST(lines)
{
    sl_input *input =
        read_log("{\"kind\":\"bench\",\"name\":\"a\",\"machine\":{\"cpu\":\"x\"},\"table\":\"t\",\"title\":\"Tea\","
                 "\"columns\":[\"n\"],\"rows\":[[1]],\"notes\":[\"one\",\"two\"]}\n"
                 "{\"kind\":\"bench\",\"name\":\"a\",\"machine\":{\"cpu\":\"x\"},\"columns\":[\"n\"],"
                 "\"rows\":[[2]],\"notes\":[\"three\"]}\n");
    CHECK_I64(input->tables->n_facts, 1);
    CHECK_I64(input->tables->n_notes, 3);
    for (int64_t i = 0; i < 3; i++)
        CHECK_STR(input->tables->notes[i], i == 0 ? "one" : i == 1 ? "two" : "three");
    CHECK_STR(input->tables->grids->title, "Tea");
    sl_input_destroy(input);
}

TEST(sweeps)
{
    const char *text = SWEEP CELL("c", "3072", "2048", ",\"tokens_per_s\":30,\"mfu\":0.5") CELL("a", "1024", "2048", "")
        CELL("b", "2048", "2048", ",\"tokens_per_s\":20,\"mfu\":0.25") CELL("d", "2048", "null", ",\"tokens_per_s\":10")
            CELL("b", "2048", "2048", ",\"tokens_per_s\":25,\"mfu\":0.25");
    CHECK_PAGE(text, "id=\"heat-tokens_per_s-1\"", "best 30 (3.0 KiB device, 2.0 KiB host)", "does not fit", "∞",
               "m at 8 tokens", "<b>3</b><span>cells that fit</span><small>of 4 cells</small>",
               "<td class=\"n\">25.0 %</td>");
    sl_input *input = read_log(text);
    sl_text csv = {0};
    sl_report_csv(&csv, input);
    CHECK_STR(csv.data,
              "cell,model,seqlen,device_budget_bytes,host_budget_bytes,tokens_per_s,mfu\r\n"
              "a,m,8,1024,2048,,\r\nb,m,8,2048,2048,25,0.25\r\nc,m,8,3072,2048,30,0.5\r\nd,m,8,2048,,10,\r\n");
    sl_text_free(&csv);
    CHECK_FAILS(sl_report_trace(&csv, input), SL_E_USAGE);
    sl_text_free(&csv);
    sl_input_destroy(input);
    CHECK_PAGE(SWEEP, "0 cells");
    CHECK_PAGE(SWEEP CELL("a", "1024", "2048", ""), "no cell fits");
}

TEST(csv)
{
    sl_text csv = {0};
    sl_input *input = read_log(
        "{\"kind\":\"bench\",\"columns\":[\"a,b\",\"c\"],\"rows\":[[\"say \\\"hi\\\"\",1.5],[\"=SUM(A1)\",null]]}");
    sl_report_csv(&csv, input);
    CHECK_STR(csv.data, "\"a,b\",c\r\n\"say \"\"hi\"\"\",1.5\r\n\"'=SUM(A1)\",\r\n");
    sl_text_free(&csv);
    sl_input_destroy(input);
}

TEST(terminal)
{
    sl_text text = {0}, shown = {0};
    make_log(&(made_step){.matmul_s = 0.75, .norm_s = 0.25}, &text);
    sl_input *input = read_log(text.data);
    sl_report_terminal(&shown, input, 100);
    CHECK_CONTAINS(shown.data, "Limited by compute: 75.0 %");
    CHECK_CONTAINS(shown.data, "██████████████████\n"); /* 18 of 24 */
    CHECK_CONTAINS(shown.data, "matmul");
    sl_text_free(&shown);
    sl_report_terminal(&shown, input, 0); /* no terminal, no bars */
    CHECK(!strstr(shown.data, "█"));
    sl_text_free(&shown);
    sl_input_destroy(input);
    sl_text_free(&text);
}

/* ---- mistakes ---- */

static void refused(const char *text, const char *part)
{
    sl_input *input;
    CHECK_FAILS(sl_input_parse("f.jsonl", text, strlen(text), &input), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), part);
}

TEST(refusals)
{
    refused("", "is empty");
    refused(" \n\n", "is empty");
    refused("hello\n", "f.jsonl:1:1:");
    refused("[1,2]", "a line must be a JSON object");
    refused("{\"a\":1}\n", "f.jsonl:1:1: the object has no \"event\"");
    refused(MADE_RUN "{\"event\":\"step\",\"loss\":}\n" MADE_PLAN, "f.jsonl:2:24:");
    refused(MADE_RUN "{\"event\":\"step\",\"loss\":\"high\"}\n", "f.jsonl:2:24: \"loss\" must be a number");
    refused(MADE_RUN "{\"event\":\"step\",\"step\":-1}\n", "f.jsonl:2:24: \"step\" must be a whole number");
    refused(MADE_RUN "{\"event\":\"timeline\",\"first\":5,\"rows\":[]}\n", "lines are missing");
    refused(MADE_RUN "{\"event\":\"timeline\",\"rows\":[[\"compute\",\"a\",\"b\",\"forward\",0,5,4,0,0,0]]}\n",
            "nor end before it begins");
    refused(MADE_RUN "{\"event\":\"timeline\",\"rows\":[[\"gpu\"]]}\n", "must be one of the names");
    refused(MADE_RUN "{\"event\":\"places\",\"rows\":[[\"device\",\"data\",-1,0,0]]}\n", "cannot be");
    refused(MADE_RUN "{\"event\":\"end\",\"ops\":[{\"op\":\"x\",\"stream\":\"y\"}]}\n", "is no stream");
    refused(CELL("a", "1", "1", ""), "before the line that begins its sweep");
    refused(MADE_RUN SWEEP, "a table in the log of a run");
    refused(SWEEP SWEEP, "a second sweep");
    refused("{\"columns\":[],\"rows\":[]}", "1 to 256 columns");
    refused("{\"columns\":[\"a\"],\"rows\":[[1,2]]}", "2 values under 1 columns");
    refused("{\n\"columns\":[\"a\"],\n\"rows\":[\n7]}", "f.jsonl:4:1: a row must be");
    refused("{\"tables\":7}", "\"tables\" must be an array");
    sl_input *input;
    CHECK_FAILS(sl_input_read(test_path("nothing.jsonl"), &input), SL_E_IO);
    CHECK_FAILS(sl_input_read(test_dir(), &input), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "events.jsonl");
}

/* What a run left out of its data stands on its page, and no text of it is HTML. */
TEST(says_what_it_read)
{
    static const char log[] =
        "{\"event\":\"run\",\"t\":0,\"model\":\"m\",\"tokens_per_step\":1,\"first_step\":0,\"data\":{"
        "\"files\":1,\"summary\":\"JSON records: 3 left out (empty) <b>\"},\"val_data\":{"
        "\"summary\":\"text\"}}\n";
    sl_input *input = read_log(log);
    const sl_input *inputs[] = {input};
    sl_text page = {0};
    sl_report_page(&page, inputs, 1);
    CHECK_OK(sl_text_status(&page));
    CHECK_CONTAINS(page.data, "Data: JSON records: 3 left out (empty) &lt;b&gt;</p>");
    CHECK_CONTAINS(page.data, "Validation: text</p>");
    sl_text_free(&page);
    sl_input_destroy(input);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(wellformed_itself);
    RUN(a_run);
    RUN(times_and_memory);
    RUN(next_to_nothing);
    RUN(odd_names_and_numbers);
    RUN(resumed);
    RUN(samples);
    RUN(huge);
    RUN(tables);
    RUN(lines);
    RUN(sweeps);
    RUN(csv);
    RUN(terminal);
    RUN(refusals);
    RUN(says_what_it_read);
    return test_end();
}
