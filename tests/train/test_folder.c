/* A folder that transformers' save_pretrained wrote (f16, several files, tokenizer, templates; tests/golden/make_folder.py), by its path
 * and from a Hugging Face cache of links: the loss is transformers' own, and a checkpoint is as complete as the folder. */
#include <unistd.h>

#include "model/safetensors.h"
#include "run_job.h"

enum { SEQLEN = 32, MOST = 1 << 13 };

static char golden[400];
static int32_t tokens[SEQLEN + 1];
static double expected;

static char *read_text(const char *folder, const char *name)
{
    char path[700], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    return text;
}

static void read_expected(void)
{
    sl_region *region;
    const sl_json *root;
    int64_t n = 0;
    snprintf(golden, sizeof golden, "%s/tests/golden/folder", SL_SOURCE_DIR);
    char *text = read_text(golden, "expected.json");
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "expected.json", text, strlen(text), &root));
    for (const sl_json *t = sl_json_get(root, "tokens")->child; t && n <= SEQLEN; t = t->next)
        tokens[n++] = (int32_t) t->integer;
    REQUIRE(n == SEQLEN + 1);
    expected = sl_json_get(root, "loss")->number;
    sl_region_destroy(region);
    sl_free(text);
}

static sl_status give_tokens(void *user, sl_sequence *sequence)
{
    (void) user;
    REQUIRE(sequence->seqlen == SEQLEN);
    memcpy(sequence->tokens, tokens, sizeof tokens);
    return SL_OK;
}

/* One step that changes nothing; its checkpoint is in <out>/checkpoints/step-00000001. */
static double train(const char *model, const char *out)
{
    sl_job *job;
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    sl_data data = SL_SIZED(sl_data);
    data.read = give_tokens;
    data.identity = "golden";
    data.sequences = 4;
    const char *const set[][2] = {{"model", model},      {"seqlen", "32"}, {"tokens-per-step", "32"},
                                  {"steps", "1"},        {"lr", "0"},      {"precision", "f32"},
                                  {"costs", "roofline"}, {"out", out},     {"device", "cpu"}};
    CHECK_OK(sl_job_create(&job));
    for (int64_t i = 0; i < SL_COUNT(set); i++)
        CHECK_OK(sl_job_set(job, set[i][0], set[i][1]));
    CHECK_OK(sl_job_set_data(job, &data));
    CHECK_OK(sl_trainer_create(job, &trainer));
    CHECK_OK(sl_trainer_step(trainer, &result));
    CHECK_OK(sl_trainer_checkpoint(trainer));
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    return result.loss;
}

static void check_same_file(const char *folder, const char *name)
{
    char *a = read_text(golden, name), *b = read_text(folder, name);
    CHECK_STR(b, a);
    sl_free(a);
    sl_free(b);
}

static void check_checkpoint(const char *out)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                        "generation_config.json", "additional_chat_templates/tools.jinja"};
    static float got[MOST], want[MOST];
    char folder[600];
    sl_tensors *from, *to;
    snprintf(folder, sizeof folder, "%s/checkpoints/step-00000001", out);
    for (int64_t i = 0; i < SL_COUNT(files); i++)
        check_same_file(folder, files[i]);
    char *config = read_text(folder, "config.json");
    CHECK_CONTAINS(config, "\"torch_dtype\": \"float32\"");
    CHECK_CONTAINS(config, "\"bos_token_id\": 61");
    CHECK_CONTAINS(config, "\"max_position_embeddings\": 64");
    sl_free(config);
    CHECK_OK(sl_tensors_open(golden, &from));
    CHECK_OK(sl_tensors_open(folder, &to));
    REQUIRE(sl_tensors_count(from) == sl_tensors_count(to));
    for (int64_t i = 0; i < sl_tensors_count(from); i++) {
        const sl_tensor *a = sl_tensors_at(from, i), *b = sl_tensors_at(to, i);
        CHECK_STR(b->name, a->name);
        REQUIRE(a->dtype == SL_FILE_F16 && b->dtype == SL_FILE_F32 && a->count == b->count && a->count <= MOST);
        CHECK_OK(sl_tensors_read(from, a, 0, a->count, SL_F32, want));
        CHECK_OK(sl_tensors_read(to, b, 0, b->count, SL_F32, got));
        CHECK(memcmp(got, want, (size_t) a->count * sizeof *got) == 0);
    }
    sl_tensors_close(from);
    sl_tensors_close(to);
}

TEST(a_folder)
{
    char out[300];
    snprintf(out, sizeof out, "%s", test_path("by-path"));
    CHECK_NEAR(train(golden, out), expected, 1e-5);
    check_checkpoint(out);
}

static void link_blobs(const char *below, const char *snapshot)
{
    sl_region *region;
    const char **names;
    int64_t count;
    char from[700], to[700];
    snprintf(from, sizeof from, "%s%s", golden, below);
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_dir_list(region, from, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        snprintf(from, sizeof from, "%s%s/%s", golden, below, names[i]);
        snprintf(to, sizeof to, "%s%s/%s", snapshot, below, names[i]);
        if (!sl_dir_exists(from)) {
            REQUIRE(symlink(from, to) == 0);
            continue;
        }
        CHECK_OK(sl_dir_create(to));
        snprintf(from, sizeof from, "%s/%s", below, names[i]);
        link_blobs(from, snapshot);
    }
    sl_region_destroy(region);
}

/* A tokenizer takes memory before there is a plan. */
TEST(tokenizing_keeps_the_host_budget)
{
    char path[400], options[2000];
    sl_trainer *trainer;
    snprintf(path, sizeof path, "%s", test_path("records.jsonl"));
    FILE *file = fopen(path, "w");
    REQUIRE(file && fputs("{\"text\": \"some words, and some more words\"}\n", file) >= 0 && fclose(file) == 0);
    snprintf(options, sizeof options,
             "model '%s' data '%s' cache '%s' seqlen 8 tokens-per-step 8 chunk-tokens 8 host-mem 64KiB", golden, path,
             test_path("tokens"));
    sl_job *job = make_job(options);
    sl_heap_peak_reset();
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_DOES_NOT_FIT);
    CHECK_CONTAINS(sl_error_message(), "tokenizing the data: ");
    CHECK_CONTAINS(sl_error_message(), "raise --host-mem");
    sl_job_destroy(job);
    char *after;
    CHECK_OK(sl_alloc(&after, 1 << 20, 1)); /* the limit is gone */
    sl_free(after);
}

TEST(the_cache)
{
    char out[300], snapshot[400];
    snprintf(out, sizeof out, "%s", test_path("by-name"));
    snprintf(snapshot, sizeof snapshot, "%s", test_path("hub/models--acme--tiny/snapshots/0123abcd"));
    CHECK_OK(sl_dir_create(snapshot));
    CHECK_OK(sl_dir_create(test_path("hub/models--acme--tiny/refs")));
    CHECK_OK(sl_file_write_atomic(test_path("hub/models--acme--tiny/refs/main"), "0123abcd", 8));
    link_blobs("", snapshot);
    setenv("HF_HUB_CACHE", test_path("hub"), 1);
    CHECK_NEAR(train("acme/tiny", out), expected, 1e-5);
    check_checkpoint(out);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    read_expected();
    RUN(a_folder);
    RUN(tokenizing_keeps_the_host_budget);
    RUN(the_cache);
    return test_end();
}
