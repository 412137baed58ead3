/* Evaluation: the figures are those of a validation over the same sequences, to the same bits within every budget, and nothing of
 * training is in memory. */
#include "core/file.h"
#include "data/shard.h"
#include "infer/eval.h"
#include "train/run_job.h"

static const char *model_path(void)
{
    static char path[600];
    if (path[0])
        return path;
    char options[700], out[400];
    sl_trainer *trainer;
    sl_trainer_view view;
    sl_step_result result = SL_SIZED(sl_step_result);
    snprintf(out, sizeof out, "%s", test_path("run"));
    snprintf(options, sizeof options, "out '%s' steps 3", out);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &trainer));
    while (!result.done)
        CHECK_OK(sl_trainer_step(trainer, &result));
    sl_trainer_look(trainer, &view);
    snprintf(path, sizeof path, "%s", view.checkpoint);
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    return path;
}

/* "key value ..." on top of a small evaluation. */
static sl_options *eval_options(const char *text)
{
    sl_options *options;
    int64_t count;
    char copy[1024], *rest = copy;
    const sl_option *table = sl_eval_table(&count);
    CHECK_OK(sl_options_create(table, count, &options));
    CHECK_OK(sl_options_set(options, "model", model_path()));
    CHECK_OK(sl_options_set(options, "data", corpus_path()));
    CHECK_OK(sl_options_set(options, "seqlen", "32"));
    CHECK_OK(sl_options_set(options, "tokens-per-step", "4096"));
    CHECK_OK(sl_options_set(options, "chunk-tokens", "512"));
    CHECK_OK(sl_options_set(options, "device", "cpu"));
    CHECK_OK(sl_options_set(options, "costs", "roofline"));
    snprintf(copy, sizeof copy, "%s", text);
    for (char *key; (key = next_word(&rest)) != NULL;)
        CHECK_OK(sl_options_set(options, key, next_word(&rest)));
    return options;
}

typedef struct found {
    sl_eval_result result;
    size_t device_peak;
    char json[2048];
} found;

static found evaluate(const char *text)
{
    found out = {0};
    sl_eval *eval;
    sl_trainer_view view;
    sl_json_writer w = {0};
    sl_options *options = eval_options(text);
    CHECK_OK(sl_eval_create(options, NULL, NULL, &eval));
    CHECK_OK(sl_eval_run(eval, &out.result));
    sl_eval_look(eval, &view);
    out.device_peak = view.measured.peak_bytes[SL_TIER_DEVICE];
    sl_eval_put(eval, &out.result, &w);
    CHECK_OK(sl_text_status(&w.text));
    snprintf(out.json, sizeof out.json, "%s", w.text.data);
    sl_text_free(&w.text);
    sl_eval_destroy(eval);
    sl_options_destroy(options);
    return out;
}

TEST(equals_validation)
{
    sl_trainer *trainer;
    double loss;
    char options[1600];
    snprintf(options, sizeof options,
             "init-from '%s' val-data '%s' val-every 100 val-steps 100000 tokens-per-step 4096 chunk-tokens 512",
             model_path(), corpus_path());
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &trainer));
    CHECK_OK(sl_trainer_validate(trainer, &loss));
    found all = evaluate("");
    CHECK(all.result.loss == loss);
    CHECK(all.result.perplexity == exp(loss));
    CHECK(all.result.tokens == (double) (all.result.sequences * 32));
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
}

/* The corpus is one file, so no target is a separator: every token is a byte. */
TEST(counts_bytes)
{
    found all = evaluate("");
    CHECK(all.result.bytes == (int64_t) all.result.tokens);
    CHECK_NEAR(all.result.bits_per_byte, all.result.loss / log(2), 1e-9);
    CHECK(strstr(all.json, "\"bits_per_byte\":") != NULL);
    char *events, *loss, *bits; /* of training: steps have them too */
    size_t length;
    CHECK_OK(sl_file_read_all(test_path("run/events.jsonl"), 1 << 24, &events, &length));
    char *step = strstr(events, "\"event\":\"step\"");
    REQUIRE(step && (loss = strstr(step, "\"loss\":")) && (bits = strstr(step, "\"bits_per_byte\":")));
    CHECK_NEAR(strtod(bits + 16, NULL), strtod(loss + 7, NULL) / log(2), 1e-6);
    sl_free(events);
}

TEST(budgets_and_threads_change_no_bit)
{
    found all = evaluate("threads 1"), tight = evaluate("device-mem 80% host-mem 64MiB threads 2"),
          threads = evaluate("threads 3");
    CHECK(all.result.loss == tight.result.loss);
    CHECK(all.result.loss == threads.result.loss);
    CHECK(tight.device_peak < all.device_peak);
}

/* Less data than a step takes: nothing is counted twice. */
TEST(little_data)
{
    char path[400], options[500];
    snprintf(path, sizeof path, "%s", test_path("little.txt"));
    CHECK_OK(sl_file_write_atomic(path, "sluice gate water runs down the hill and down again", 51));
    snprintf(options, sizeof options, "data '%s' seqlen 16", path);
    found little = evaluate(options);
    CHECK_I64(little.result.sequences, 3);
    CHECK(little.result.tokens == 48);
    CHECK(little.result.bytes == 48);
}

static void write_tokenizer(const char *path)
{
    static const char json[] =
        "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true, "
        "\"single_word\": "
        "false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false}], \"normalizer\": null, "
        "\"pre_tokenizer\": "
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "
        "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": "
        "{\"<s>\": "
        "{\"id\": \"<s>\", \"ids\": [0], \"tokens\": [\"<s>\"]}}}, \"decoder\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}, \"model\": {\"type\": \"BPE\", "
        "\"vocab\": {\"<s>\": 0, \"w\": 1, \"a\": 2, \"t\": 3, \"e\": 4, \"r\": 5, \"s\": 6, \"\u0120\": 7, "
        "\"\u00c3\": 8, "
        "\"\u00a9\": 9, \"at\": 10, \"\u0120at\": 11}, \"merges\": [\"a t\", \"\u0120 at\"]}}";
    CHECK_OK(sl_file_write_atomic(path, json, sizeof json - 1));
}

/*
 *     <s> w at e r _at _ s e a   <s> C3 A9 t C3 A9       16 tokens: 3 sequences of 4 and their last target
 *      0  1  2 1 1  3  1 1 1 1    0   1  1               bytes of text: 12 of the first record, 2 of the second
 */
TEST(bytes_of_tokenized_text)
{
    static const char lines[] = "{\"text\": \"water at sea\"}\n{\"text\": \"\\u00e9t\\u00e9\"}\n";
    char options[2000], records[400], folder[400];
    snprintf(records, sizeof records, "%s", test_path("texts.jsonl"));
    snprintf(folder, sizeof folder, "%s", test_path("made"));
    CHECK_OK(sl_file_write_atomic(records, lines, sizeof lines - 1));
    CHECK_OK(sl_dir_create(folder));
    write_tokenizer(test_path("made/tokenizer.json"));
    snprintf(options, sizeof options, "data '%s' tokenizer '%s' cache '%s' seqlen 4", records, folder,
             test_path("tokens"));
    const found all = evaluate(options);
    CHECK(all.result.tokens == 12);
    CHECK_I64(all.result.bytes, 14);
    CHECK_NEAR(all.result.bits_per_byte, all.result.loss * 12 / log(2) / 14, 1e-12);
    const found again = evaluate(options); /* from the cache */
    CHECK_I64(again.result.bytes, 14);
    strcat(options, " mask-documents true chunk-tokens 4");
    CHECK_I64(evaluate(options).result.bytes, 14);
    strcat(options, " chunk-tokens 2"); /* slices of a sequence */
    CHECK_I64(evaluate(options).result.bytes, 14);
}

/* The loss counts the completion: " sea" and " rat", four bytes each, and an end that is no text. */
TEST(bytes_of_completions)
{
    static const char lines[] = "{\"prompt\": \"water\", \"completion\": \" sea\"}\n"
                                "{\"prompt\": \"at a\", \"completion\": \" rat\"}\n";
    char options[2000], path[400];
    snprintf(path, sizeof path, "%s", test_path("some.jsonl"));
    CHECK_OK(sl_file_write_atomic(path, lines, sizeof lines - 1));
    snprintf(options, sizeof options, "data '%s' tokenizer '%s' cache '%s' seqlen 16", path, test_path("made"),
             test_path("tokens"));
    CHECK_I64(evaluate(options).result.bytes, 8);
    strcat(options, " chunk-tokens 4");
    CHECK_I64(evaluate(options).result.bytes, 8);
}

/* Short records are packed, so a sequence has more segments than any option says. */
TEST(records)
{
    char text[8192] = "", path[400], options[2000];
    snprintf(path, sizeof path, "%s", test_path("records.jsonl"));
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"prompt\": \"%d and\", \"completion\": \" %d\"}\n",
                 i, i + 1);
    FILE *file = fopen(path, "w");
    REQUIRE(file && fputs(text, file) >= 0 && fclose(file) == 0);
    snprintf(options, sizeof options, "model '%s/tests/golden/folder' data '%s' cache '%s'", SL_SOURCE_DIR, path,
             test_path("tokens"));
    const found whole = evaluate(options);
    CHECK(whole.result.tokens > 60 && whole.result.tokens < 60 * 32);
    CHECK(whole.result.loss > 0.1 && whole.result.loss < 20);
    CHECK_I64(whole.result.bytes, -1); /* the tokenizer has no token for a space */
    CHECK_CONTAINS(whole.json, "\"bytes_unknown\":\"the tokenizer");
    strcat(options, " chunk-tokens 32 threads 1");
    const found one = evaluate(options);
    CHECK_I64(one.result.tokens, whole.result.tokens);
    CHECK_NEAR(one.result.loss, whole.result.loss, 1e-5);
}

TEST(shards_have_no_text)
{
    sl_shard_writer *writer;
    int32_t ids[100] = {0};
    char options[500];
    for (int i = 0; i < 100; i++)
        ids[i] = 'a' + i % 26;
    CHECK_OK(sl_shard_writer_open(test_path("s.bin"), 256, 0, 0, &writer));
    CHECK_OK(sl_shard_writer_put(writer, ids, 100));
    CHECK_OK(sl_shard_writer_commit(writer));
    sl_shard_writer_destroy(writer);
    snprintf(options, sizeof options, "data '%s'", test_path("s.bin"));
    found shards = evaluate(options);
    CHECK_I64(shards.result.bytes, -1);
    CHECK_CONTAINS(shards.json, "\"bits_per_byte\":null,\"bytes\":null,\"bytes_unknown\":\"the data holds tokens, not");
}

TEST(refusals)
{
    sl_eval *eval;
    sl_eval_result result;
    sl_options *options = eval_options("model byte-test");
    CHECK_FAILS(sl_eval_create(options, NULL, NULL, &eval), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "no weights to evaluate");
    sl_options_destroy(options);
    options = eval_options("device-mem 100KiB");
    CHECK_FAILS(sl_eval_create(options, NULL, NULL, &eval), SL_E_DOES_NOT_FIT);
    CHECK_CONTAINS(sl_error_message(), "would do");
    sl_options_destroy(options);
    options = eval_options("");
    CHECK_OK(sl_eval_create(options, NULL, NULL, &eval));
    sl_eval_request_stop(eval);
    CHECK_FAILS(sl_eval_run(eval, &result), SL_E_INTERRUPTED);
    CHECK_CONTAINS(sl_error_message(), "stopped as asked");
    sl_eval_destroy(eval);
    sl_options_destroy(options);
}

/* The folder of a run stands for its newest checkpoint. */
TEST(a_run_as_model)
{
    char options[500];
    snprintf(options, sizeof options, "model '%s'", test_path("run"));
    CHECK(evaluate(options).result.loss == evaluate("").result.loss);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(equals_validation);
    RUN(counts_bytes);
    RUN(budgets_and_threads_change_no_bit);
    RUN(little_data);
    RUN(bytes_of_tokenized_text);
    RUN(bytes_of_completions);
    RUN(records);
    RUN(shards_have_no_text);
    RUN(refusals);
    RUN(a_run_as_model);
    return test_end();
}
