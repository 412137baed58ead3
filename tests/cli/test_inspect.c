/* `sluice inspect`: what it shows of presets and folders, with and without weights, tokenizer and chat template, and that the budgets
 * it names are those of `sluice plan`. */
#include "run_cli.h"

static const sl_json *inspect(const char *args)
{
    char line[600];
    snprintf(line, sizeof line, "inspect --json %s", args);
    CHECK_I64(sluice(line), 0);
    CHECK_STR(err, "");
    return last_line();
}

static int64_t number(const sl_json *object, const char *key)
{
    int64_t value;
    CHECK_OK(sl_json_i64("inspect", object, key, &value));
    return value;
}

static const char *text(const sl_json *object, const char *key)
{
    const char *value;
    CHECK_OK(sl_json_string_or("inspect", object, key, "?", &value));
    return value;
}

TEST(presets)
{
    const sl_json *root = inspect("llama3-1.5b");
    CHECK_STR(text(root, "family"), "llama");
    CHECK_I64(number(root, "parameters"), 1498482688);
    CHECK(!sl_json_get(root, "weights"));
    const sl_json *training = sl_json_get(root, "training");
    REQUIRE(training && training->count == 2);
    int64_t host = 0;
    for (const sl_json *precision = training->child; precision; precision = precision->next) {
        int64_t resident = number(precision, "resident_device_bytes"), least = number(precision, "least_device_bytes");
        CHECK(least > 0 && least < resident / 5);
        CHECK(number(precision, "least_host_bytes") > host); /* f32 master weights take more */
        host = number(precision, "least_host_bytes");
    }
    CHECK_I64(sluice("inspect byte-test"), 0);
    CHECK_CONTAINS(out, "byte-test: family llama");
    CHECK_CONTAINS(out, "weights     none");
    CHECK_CONTAINS(out, "no chat template");
    CHECK_CONTAINS(out, "bf16-master");
}

/* The least budgets are enough, and with a hundredth less device memory nothing fits. */
TEST(budgets_are_those_of_the_plan)
{
    char args[300];
    const sl_json *first = sl_json_get(inspect("byte-nano --seqlen 128 --hw h200"), "training");
    REQUIRE(first && first->child);
    int64_t device = number(first->child, "least_device_bytes"), host = number(first->child, "least_host_bytes");
    snprintf(args, sizeof args,
             "plan --model byte-nano --seqlen 128 --hw h200 --precision bf16 --device-mem %lld --host-mem %lld",
             (long long) device, (long long) host);
    CHECK_I64(sluice(args), 0);
    snprintf(args, sizeof args, "plan --model byte-nano --seqlen 128 --hw h200 --precision bf16 --device-mem %lld",
             (long long) (device - device / 100));
    CHECK_I64(sluice(args), 3);
}

TEST(folders)
{
    CHECK_I64(sluice("init --model byte-test --out m --weights --precision bf16"), 0);
    const sl_json *root = inspect("m"), *weights = sl_json_get(root, "weights");
    REQUIRE(weights != NULL);
    CHECK_I64(number(weights, "files"), 1);
    CHECK_I64(number(weights, "bytes"), 2 * number(root, "parameters"));
    CHECK_I64(number(sl_json_get(weights, "dtypes"), "BF16"), number(weights, "tensors"));
    CHECK_STR(text(root, "problem"), "");
    CHECK_STR(text(root, "companions"), "");
    CHECK_STR(text(root, "chat_template"), "");

    write_text("m/tokenizer.json", "{}");
    write_text("m/tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\"}");
    root = inspect("m/config.json");
    CHECK_STR(text(root, "companions"), "tokenizer.json, tokenizer_config.json");
    CHECK_STR(text(root, "chat_template"), "tokenizer_config.json");
    write_text("m/chat_template.jinja", "{{ messages }}");
    CHECK_STR(text(inspect("m"), "chat_template"), "chat_template.jinja");
    CHECK_I64(sluice("inspect m"), 0);
    CHECK_CONTAINS(out, "tensors in 1 file");
    CHECK_CONTAINS(out, "BF16");
}

/* What is wrong with a folder is shown beside what is right with it. */
TEST(problems)
{
    CHECK_I64(sluice("init --model byte-test --out bad --weights"), 0);
    CHECK_I64(sluice("init --model byte-nano --out other --weights"), 0);
    REQUIRE(rename(test_path("bad/model.safetensors"), test_path("keep")) == 0);
    char from[600], to[600];
    snprintf(from, sizeof from, "%s", test_path("other/model.safetensors"));
    snprintf(to, sizeof to, "%s", test_path("bad/model.safetensors"));
    REQUIRE(rename(from, to) == 0);
    CHECK_CONTAINS(text(inspect("bad"), "problem"), "bad/model.safetensors: tensor");
    write_text("bad/model.safetensors", "no weights at all");
    CHECK_CONTAINS(text(inspect("bad"), "problem"), "bad/model.safetensors");
    CHECK_I64(sluice("inspect bad"), 0);
    CHECK_CONTAINS(out, "problem ");
    /* A tied model's weights under a config.json that unties them: said once, not by every plan. */
    CHECK_I64(sluice("init --model byte-test --out headless --weights"), 0);
    static char text_of_config[4096];
    read_text(test_path("headless/config.json"), text_of_config, sizeof text_of_config);
    char *tied = strstr(text_of_config, "\"tie_word_embeddings\": false");
    REQUIRE(tied != NULL);
    memcpy(tied, "\"tie_word_embeddings\": true ", 28);
    write_text("headless/config.json", text_of_config);
    CHECK_I64(sluice("init --model headless --out headless --weights --force"), 0);
    memcpy(tied, "\"tie_word_embeddings\": false", 28);
    write_text("headless/config.json", text_of_config);
    CHECK_I64(sluice("inspect headless"), 0);
    CHECK_CONTAINS(out, "head tied to the embedding");
    const char *warning = strstr(err, "has no lm_head.weight");
    CHECK(warning && !strstr(warning + 1, "has no lm_head.weight"));
    refused(2, "inspect", "inspect needs a model");
    refused(2, "inspect nosuch", "no model \"nosuch\"");
    refused(2, "inspect no/such", "hf download no/such");
    refused(2, "inspect byte-test --hw zzz", "there is no hardware \"zzz\"");
    refused(2, "inspect byte-test --seqlen 0", "--seqlen");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(presets);
    RUN(budgets_are_those_of_the_plan);
    RUN(folders);
    RUN(problems);
    return test_end();
}
