/* Options: one table, four sources, exact messages. */
#include "core/options.h"

#include "core/fault.h"
#include "core/file.h"
#include "test.h"

static const sl_option table[] = {
    {"model", "NAME", SL_OPT_STRING, NULL, "Job", "A preset name or a folder with a config.json."},
    {"steps", "N", SL_OPT_I64, "100", "Job", "Optimizer steps to run."},
    {"lr", "X", SL_OPT_F64, "3e-4", "Job", "Learning rate."},
    {"device-mem", "BYTES", SL_OPT_BYTES, "unlimited", "Budgets",
     "Device memory the run may take, everything included: parameters, gradients, optimizer state, activations, "
     "workspaces "
     "and buffers. Default: what there is."},
    {"json", "", SL_OPT_FLAG, "false", "Output", "Put one object on the last line of stdout."},
    {"progress", "", SL_OPT_FLAG, "true", "Output", "Leave the progress line out."},
    {"precision", "f32|bf16|bf16-master", SL_OPT_CHOICE, "bf16-master", "Job", "What is kept in which type."},
};

static sl_options *options;

static void fresh(void)
{
    sl_options_destroy(options);
    CHECK_OK(sl_options_create(table, SL_COUNT(table), &options));
}

static sl_status parse_args(const char *first, const char *second, const char *third)
{
    char a[256], b[256], c[256], *argv[] = {a, b, c};
    snprintf(a, sizeof a, "%s", first);
    snprintf(b, sizeof b, "%s", second ? second : "");
    snprintf(c, sizeof c, "%s", third ? third : "");
    return sl_options_parse_args(options, third ? 3 : second ? 2 : 1, argv);
}

static sl_status parse_text(const char *text)
{
    CHECK_OK(sl_file_write_atomic(test_path("job.conf"), text, strlen(text)));
    return sl_options_parse_file(options, test_path("job.conf"));
}

TEST(defaults)
{
    fresh();
    CHECK(sl_options_string(options, "model") == NULL);
    CHECK_I64(sl_options_i64(options, "steps"), 100);
    CHECK(sl_options_f64(options, "lr") == 3e-4);
    CHECK(sl_options_bytes(options, "device-mem") == SIZE_MAX);
    CHECK(!sl_options_flag(options, "json") && sl_options_flag(options, "progress"));
    CHECK_STR(sl_options_string(options, "precision"), "bf16-master");
    CHECK(!sl_options_is_set(options, "steps"));
}

TEST(arguments)
{
    fresh();
    CHECK_OK(parse_args("--model", "small", "--json"));
    CHECK_OK(parse_args("--device-mem=1.5 GiB", "--no-progress", "--steps=1k"));
    CHECK_STR(sl_options_string(options, "model"), "small");
    CHECK(sl_options_flag(options, "json") && !sl_options_flag(options, "progress"));
    CHECK(sl_options_bytes(options, "device-mem") == (size_t) 3 << 29);
    CHECK_I64(sl_options_i64(options, "steps"), 1024);
    CHECK(sl_options_is_set(options, "steps") && !sl_options_is_set(options, "lr"));
    CHECK_OK(parse_args("--steps", "-5", NULL));
    CHECK_I64(sl_options_i64(options, "steps"), -5);
    CHECK_OK(parse_args("--model=", "--json=off", NULL));
    CHECK_STR(sl_options_string(options, "model"), "");
    CHECK(!sl_options_flag(options, "json"));
}

TEST(operands)
{
    char a[] = "first", b[] = "--steps", c[] = "3", d[] = "second", *argv[] = {a, b, c, d};
    const char *found[2] = {NULL, NULL};
    int64_t count = 77;
    fresh();
    CHECK_OK(sl_options_parse_operands(options, 4, argv, found, 2, &count));
    CHECK_I64(count, 2);
    CHECK(found[0] == a && found[1] == d);
    CHECK_I64(sl_options_i64(options, "steps"), 3);
    count = 77;
    CHECK_FAILS(sl_options_parse_operands(options, 4, argv, found, 1, &count), SL_E_USAGE);
    CHECK_STR(sl_error_message(), "\"second\" is one argument too many: give at most 1");
    count = 77;
    CHECK_OK(sl_options_parse_operands(options, 2, argv + 1, NULL, 0, &count));
    CHECK_I64(count, 0);
}

TEST(wrong_arguments)
{
    static const struct {
        const char *first, *second, *message;
    } cases[] = {
        {"--device-men", "1GiB", "unknown option --device-men; did you mean --device-mem?"},
        {"--device_mem", "1GiB", "did you mean --device-mem?"},
        {"--Steps", "1", "did you mean --steps?"},
        {"--stesp", "1", "did you mean --steps?"},
        {"--prec", "f32", "did you mean --precision?"},
        {"--completely-different", "1", "--help lists"},
        {"--no-steps", NULL, "unknown option --no-steps"},
        {"--model", NULL, "--model needs a value: --model NAME"},
        {"--model", "--json", "--model needs a value"},
        {"--steps", "many", "--steps: \"many\" is not a whole number"},
        {"--lr", "fast", "--lr: \"fast\" is not a number"},
        {"--device-mem", "24G", "--device-mem: \"24G\" has no unit"},
        {"--precision", "fp8", "--precision: \"fp8\" is not one of f32|bf16|bf16-master"},
        {"--precision", "bf", "is not one of"},
        {"--json=maybe", NULL, "--json: \"maybe\" is neither true nor false"},
        {"--no-json=true", NULL, "takes no value"},
        {"small", NULL, "\"small\" is not an option"},
        {"-x", NULL, "\"-x\" is not an option"},
        {"--", NULL, "\"--\" is not an option"},
        {"--=3", NULL, "is not an option"},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        fresh();
        CHECK_FAILS(parse_args(cases[i].first, cases[i].second, NULL), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), cases[i].message);
    }
    char longer[256];
    memset(longer, 'x', sizeof longer);
    memcpy(longer, "--", 2);
    longer[255] = 0;
    CHECK_FAILS(parse_args(longer, NULL, NULL), SL_E_USAGE);
}

/* A budget is an amount or a share, from every source, and is kept as it was written. */
TEST(budgets)
{
    static const sl_option memory[] = {
        {"host-mem", "BYTES|PERCENT", SL_OPT_BUDGET, "unlimited", "Budgets", "Host memory."},
        {"device-mem", "BYTES", SL_OPT_BYTES, "unlimited", "Budgets", "Bytes alone."}};
    sl_options_destroy(options);
    CHECK_OK(sl_options_create(memory, SL_COUNT(memory), &options));
    CHECK(sl_options_budget(options, "host-mem").bytes == SIZE_MAX &&
          sl_options_budget(options, "host-mem").share == 0);
    CHECK_OK(parse_text("host-mem = 30%"));
    CHECK_NEAR(sl_options_budget(options, "host-mem").share, 0.3, 1e-12);
    CHECK_OK(parse_text("{\"host-mem\": \"35 %\"}"));
    CHECK_NEAR(sl_options_budget(options, "host-mem").share, 0.35, 1e-12);
    CHECK_STR(sl_options_string(options, "host-mem"), "35 %");
    CHECK_OK(parse_args("--host-mem", "2GiB", NULL));
    CHECK(sl_options_budget(options, "host-mem").bytes == (size_t) 2 << 30);
    sl_options_destroy(options);
    CHECK_OK(sl_options_create(memory, SL_COUNT(memory), &options));
    setenv("SLUICE_HOST_MEM", "40%", 1);
    CHECK_OK(sl_options_parse_env(options));
    CHECK_NEAR(sl_options_budget(options, "host-mem").share, 0.4, 1e-12);
    setenv("SLUICE_HOST_MEM", "40 %%", 1);
    CHECK_FAILS(sl_options_parse_env(options), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "SLUICE_HOST_MEM");
    unsetenv("SLUICE_HOST_MEM");
    CHECK_FAILS(parse_args("--host-mem=0%", NULL, NULL), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "give a percentage above 0");
    CHECK_FAILS(parse_args("--device-mem=40%", NULL, NULL), SL_E_USAGE);
}

TEST(files)
{
    fresh();
    CHECK_OK(
        parse_text("# a job\n\nmodel = \"small # one\"  # said twice\n steps=7\njson = yes\r\ndevice-mem = 64 MiB"));
    CHECK_STR(sl_options_string(options, "model"), "small # one");
    CHECK_I64(sl_options_i64(options, "steps"), 7);
    CHECK(sl_options_flag(options, "json") && sl_options_bytes(options, "device-mem") == 64 << 20);
    fresh();
    CHECK_OK(parse_text(" {\"model\": \"tiny\", \"steps\": 9, \"lr\": 0.1, \"json\": true}"));
    CHECK_STR(sl_options_string(options, "model"), "tiny");
    CHECK(sl_options_i64(options, "steps") == 9 && sl_options_f64(options, "lr") == 0.1 &&
          sl_options_flag(options, "json"));
    CHECK_OK(parse_text(""));
    fresh();
    CHECK_OK(parse_text("\xef\xbb\xbfsteps = 11")); /* a byte-order mark */
    CHECK_I64(sl_options_i64(options, "steps"), 11);
    CHECK_OK(parse_text("\xef\xbb\xbf{\"steps\": 12}"));
    CHECK_I64(sl_options_i64(options, "steps"), 12);
}

TEST(wrong_files)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"steps = 5\nmodle = small\n", "job.conf:2: unknown option modle; did you mean model?"},
        {"steps\n", "job.conf:1: \"steps\" should be key = value"},
        {"steps = five", "job.conf:1: steps: \"five\" is not a whole number"},
        {"{\"steps\": 1.5}", "job.conf:1:11: steps: \"1.5\" is not a whole number"},
        {"{\n \"stepps\": 1}", "job.conf:2:12: unknown option stepps; did you mean steps?"},
        {"{\"json\": 1}", "json: the value should be true or false"},
        {"{\"steps\": true}", "steps: the value should be a string or a number"},
        {"{\"model\": [1]}", "model: the value should be a string or a number"},
        {"{\"model\": \"a\\u0000b\"}", "model: the value should be"},
        {"{\"model\": \"a\"", "job.conf:1:14: a comma or } should stand here"},
        {"{\"steps\": 1, \"steps\": 2}", "\"steps\" stands twice"},
        {"{\"steps\": null}", "job.conf:1:11: \"steps\" is null: give a value or leave it out"},
        {"[1]", "a configuration is a JSON object"},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        fresh();
        CHECK_FAILS(parse_text(cases[i].text), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), cases[i].message);
    }
    CHECK_FAILS(sl_options_parse_file(options, test_path("absent.conf")), SL_E_USAGE);
    CHECK_OK(sl_file_write_atomic(test_path("nul.conf"), "model = a\0b", 11));
    CHECK_FAILS(sl_options_parse_file(options, test_path("nul.conf")), SL_E_USAGE);
}

/* Command line over file over environment over default, in whatever order they are read. */
TEST(precedence)
{
    setenv("SLUICE_STEPS", "1", 1);
    setenv("SLUICE_LR", "0.5", 1);
    setenv("SLUICE_DEVICE_MEM", "1MiB", 1);
    for (int order = 0; order < 2; order++) {
        fresh();
        if (order)
            CHECK_OK(sl_options_parse_env(options));
        CHECK_OK(parse_args("--steps", "3", NULL));
        CHECK_OK(parse_text("steps = 2\nlr = 0.25\n"));
        if (!order)
            CHECK_OK(sl_options_parse_env(options));
        CHECK_I64(sl_options_i64(options, "steps"), 3);
        CHECK(sl_options_f64(options, "lr") == 0.25);
        CHECK(sl_options_bytes(options, "device-mem") == 1 << 20);
    }
    CHECK_OK(sl_options_set(options, "lr", "1"));
    CHECK(sl_options_f64(options, "lr") == 1);
    setenv("SLUICE_STEPS", "x", 1);
    CHECK_FAILS(sl_options_parse_env(options), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "environment variable SLUICE_STEPS: steps: \"x\" is not a whole number");
    unsetenv("SLUICE_STEPS");
    unsetenv("SLUICE_LR");
    unsetenv("SLUICE_DEVICE_MEM");
}

TEST(copy_and_record)
{
    sl_options *copy;
    fresh();
    CHECK_OK(parse_args("--steps", "3", "--model=a \"b\""));
    CHECK_OK(sl_options_copy(options, &copy));
    CHECK_OK(sl_options_set(options, "steps", "4"));
    CHECK_I64(sl_options_i64(copy, "steps"), 3);
    sl_json_writer w = {.depth = 0};
    sl_json_begin_object(&w, NULL);
    sl_options_put(copy, &w);
    sl_json_end_object(&w);
    CHECK_STR(w.text.data,
              "{\"model\":\"a \\\"b\\\"\",\"steps\":3,\"lr\":0.0003,\"device-mem\":\"unlimited\",\"json\":false,"
              "\"progress\":true,\"precision\":\"bf16-master\"}");
    fresh();
    CHECK_OK(parse_text(w.text.data));
    CHECK_I64(sl_options_i64(options, "steps"), 3);
    CHECK_STR(sl_options_string(options, "model"), "a \"b\"");
    sl_text_free(&w.text);
    sl_options_destroy(copy);
}

TEST(help_is_readable)
{
    sl_text help = {0};
    sl_options_help(table, SL_COUNT(table), &help);
    CHECK_OK(sl_text_status(&help));
    CHECK_CONTAINS(help.data, "Job\n  --model NAME ");
    CHECK_CONTAINS(help.data, "Optimizer steps to run. [100]\n");
    const char *steps = strstr(help.data, "  --steps N "), *help_of_steps = strstr(steps, "Optimizer steps");
    char indented[100]; /* help stands in one column, also below a name that is too long for it */
    snprintf(indented, sizeof indented, "  --precision f32|bf16|bf16-master\n%*sWhat is kept",
             (int) (help_of_steps - steps), "");
    CHECK_CONTAINS(help.data, indented);
    CHECK_CONTAINS(help.data, "\n  --no-progress ");
    CHECK(!strstr(help.data, "[unlimited]")); /* its help tells the default */
    CHECK_CONTAINS(help.data, "Defaults stand in [brackets]");
    CHECK(strstr(strstr(help.data, "Job\n") + 1, "Job\n") ==
          NULL); /* one heading per group, though the table splits it */
    for (const char *line = help.data; *line;) {
        size_t length = strcspn(line, "\n");
        CHECK_MSG(length <= 102, "%zu columns: %.*s", length, (int) length, line);
        line += length + 1;
    }
    if (getenv("SHOW"))
        printf("%s", help.data);
    sl_text_free(&help);
}

TEST(every_failed_allocation)
{
    sl_options_destroy(options);
    options = NULL;
    for (int64_t k = 1;; k++) {
        sl_options *copy = NULL;
        sl_fault_arm(SL_FAULT_ALLOC, k);
        sl_status status = sl_options_create(table, SL_COUNT(table), &options);
        if (status == SL_OK)
            status = parse_args("--model", "small", "--json");
        if (status == SL_OK)
            status = sl_options_copy(options, &copy);
        sl_fault_arm(SL_FAULT_ALLOC, 0);
        sl_options_destroy(copy);
        sl_options_destroy(options);
        options = NULL;
        CHECK_I64(sl_heap_bytes(), 0);
        if (status == SL_OK)
            break;
        CHECK(status == SL_E_MEMORY && k < 50);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(defaults);
    RUN(arguments);
    RUN(operands);
    RUN(wrong_arguments);
    RUN(budgets);
    RUN(files);
    RUN(wrong_files);
    RUN(precedence);
    RUN(copy_and_record);
    RUN(help_is_readable);
    RUN(every_failed_allocation);
    return test_end();
}
