/* Where a run's weights come from, and that it reports so: the model's folder, --init-from, the seed, a checkpoint; and the order of
 * rotated rows in all of them, those of Sluice 0.1.0 included. */
#include <sys/stat.h>

#include "core/hash.h"
#include "run_job.h"
#include "train/checkpoint_files.h"

/* What a run without steps reports. */
typedef struct origins {
    char from[32], path[600], dtypes[64], began[600], names[300], hash[32], line[1700];
    int64_t tensors, left_out, step;
} origins;

static void copy_string(const sl_json *object, const char *key, char *out, size_t size)
{
    const char *text;
    CHECK_OK(sl_json_string_or("report", object, key, "", &text));
    snprintf(out, size, "%s", text);
}

static void report_of(const char *options, origins *t)
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    sl_trainer_view view;
    const char *json;
    sl_region *region;
    const sl_json *root;
    memset(t, 0, sizeof *t);
    CHECK_OK(sl_trainer_create(job, &trainer));
    CHECK_OK(sl_trainer_report(trainer, &json));
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "report", json, strlen(json), &root));
    const sl_json *w = sl_json_get(root, "weights");
    REQUIRE(w != NULL);
    copy_string(root, "weights_hash", t->hash, sizeof t->hash);
    copy_string(w, "from", t->from, sizeof t->from);
    copy_string(w, "path", t->path, sizeof t->path);
    copy_string(w, "dtypes", t->dtypes, sizeof t->dtypes);
    copy_string(w, "began", t->began, sizeof t->began);
    copy_string(w, "left_out_names", t->names, sizeof t->names);
    CHECK_OK(sl_json_i64_or("report", w, "tensors", -1, &t->tensors));
    CHECK_OK(sl_json_i64_or("report", w, "left_out", -1, &t->left_out));
    CHECK_OK(sl_json_i64_or("report", w, "step", -1, &t->step));
    sl_trainer_look(trainer, &view);
    snprintf(t->line, sizeof t->line, "%s", view.weights);
    sl_region_destroy(region);
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
}

static const char *format(const char *text, const char *path)
{
    static char out[4][1400];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(out[turn], sizeof out[turn], text, path, path);
    return out[turn];
}

static void put(const char *name, const char *text)
{
    CHECK_OK(sl_file_write_atomic(test_path(name), text, strlen(text)));
}

static char *get(const char *name)
{
    char *text;
    size_t length;
    CHECK_OK(sl_file_read_all(test_path(name), 1 << 24, &text, &length));
    return text;
}

/* ---- files ---- */

typedef void (*change)(const sl_tensor *tensor, float *values);

static const char *dropped; /* a tensor that `rewrite` leaves out */

/* All tensors of `from` to `to`, changed on the way, and one more if it has a name. */
static void rewrite(const char *from, const char *to, const char *extra, change edit)
{
    static float values[1 << 16];
    sl_tensors *tensors;
    sl_tensors_writer *writer;
    CHECK_OK(sl_tensors_open(test_path(from), &tensors));
    CHECK_OK(sl_tensors_writer_open(test_path(to), &writer));
    CHECK_OK(sl_tensors_writer_metadata(writer, "format", "pt"));
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
            const sl_tensor *t = sl_tensors_at(tensors, i);
            if (dropped && strcmp(t->name, dropped) == 0)
                continue;
            if (pass == 0) {
                CHECK_OK(sl_tensors_writer_declare(writer, t->name, SL_FILE_F32, t->rank, t->dim));
                continue;
            }
            REQUIRE(t->count <= SL_COUNT(values));
            CHECK_OK(sl_tensors_read(tensors, t, 0, t->count, SL_F32, values));
            if (edit)
                edit(t, values);
            CHECK_OK(sl_tensors_writer_write(writer, values, (size_t) t->count * 4));
        }
        if (extra && pass == 0)
            CHECK_OK(sl_tensors_writer_declare(writer, extra, SL_FILE_F32, 1, (const int64_t[]){2}));
        else if (extra)
            CHECK_OK(sl_tensors_writer_write(writer, values, 8));
    }
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    sl_tensors_close(tensors);
}

static const char checkpoint[] = "origin/checkpoints/step-00000005";

/* Of the run that the tests below begin with. */
static const outcome *origin(void)
{
    static outcome run;
    if (!run.steps)
        run_job(format("out '%s'", test_path("origin")), 100, &run);
    return &run;
}

TEST(weights_in_the_models_folder_are_used)
{
    char folder[600];
    origins t, random, other;
    snprintf(folder, sizeof folder, "%s", test_path(checkpoint));
    origin();
    report_of("", &random);
    CHECK_STR(random.from, "random");
    CHECK_STR(random.line, "random, seed 1");
    report_of(format("model '%s'", folder), &t);
    CHECK_STR(t.from, "files");
    CHECK_STR(t.path, folder);
    CHECK_STR(t.hash, origin()->hash);
    CHECK_STR(t.dtypes, "F32");
    CHECK(t.tensors == 21 && t.left_out == 0);
    CHECK_STR(t.line, format("%s: 21 tensors, F32", folder));
    report_of(format("model '%s/config.json'", folder), &t); /* what lies beside it */
    CHECK_STR(t.hash, origin()->hash);
    CHECK_STR(t.path, folder);
    report_of(format("model '%s' from-scratch true", folder), &t);
    CHECK_STR(t.from, "random");
    CHECK_STR(t.hash, random.hash);
    /* A file of another name describes no weights. */
    char *text = get("origin/checkpoints/step-00000005/config.json");
    put("origin/checkpoints/step-00000005/other.json", text);
    sl_free(text);
    report_of(format("model '%s/other.json'", folder), &t);
    CHECK_STR(t.hash, random.hash);
    /* --init-from wins. */
    CHECK_OK(sl_dir_create(test_path("half")));
    run_job(format("precision bf16 seed 9 steps 1 out '%s'", test_path("half")), 100, &(outcome){.steps = 0});
    char options[1400];
    snprintf(options, sizeof options, "model '%s' init-from '%s'", folder, test_path("half/checkpoints/step-00000001"));
    report_of(options, &other);
    CHECK_STR(other.dtypes, "BF16");
    CHECK(strcmp(other.hash, origin()->hash) != 0 && strcmp(other.hash, random.hash) != 0);
    snprintf(options, sizeof options, "init-from '%s' from-scratch true", folder);
    refused_job(options, SL_E_USAGE, "exclude each other");
}

static void spoil(const sl_tensor *tensor, float *values)
{
    if (strcmp(tensor->name, "model.layers.1.self_attn.k_proj.weight") == 0)
        values[67] = NAN;
}

TEST(what_is_left_out_or_wrong_is_named)
{
    origins t;
    char folder[600];
    origin();
    CHECK_OK(sl_dir_create(test_path("extra")));
    snprintf(folder, sizeof folder, "%s", test_path("extra"));
    char *config = get("origin/checkpoints/step-00000005/config.json");
    put("extra/config.json", config);
    sl_free(config);
    put("extra/pytorch_model.bin", "not read");
    refused_job(format("model '%s'", folder), SL_E_USAGE, "pytorch_model.bin");
    CHECK_CONTAINS(sl_error_message(), "--from-scratch");
    sl_prediction_view view;
    prediction_job(format("model '%s'", folder), &view); /* a plan needs no weights */
    report_of(format("model '%s' from-scratch true", folder), &t);
    CHECK_STR(t.from, "random");
    rewrite("origin/checkpoints/step-00000005/model.safetensors", "extra/model.safetensors",
            "model.layers.0.self_attn.rotary_emb.inv_freq", NULL);
    report_of(format("model '%s'", folder), &t);
    CHECK(t.tensors == 21 && t.left_out == 1);
    CHECK_STR(t.names, "model.layers.0.self_attn.rotary_emb.inv_freq");
    CHECK_CONTAINS(t.line, "; without use here: model.layers.0.self_attn.rotary_emb.inv_freq");
    CHECK_STR(t.hash, origin()->hash);
    rewrite("origin/checkpoints/step-00000005/model.safetensors", "extra/model.safetensors", NULL, spoil);
    refused_job(format("model '%s'", folder), SL_E_NOT_FINITE,
                "extra/model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight\" is NaN at element 67");
    refused_job(format("model '%s' precision bf16-master on-nan skip", folder), SL_E_NOT_FINITE, "element 67");
}

static void tie(const sl_tensor *tensor, float *values)
{
    static float table[256 * 64];
    REQUIRE(strcmp(tensor->name, "lm_head.weight") != 0 || tensor->count == SL_COUNT(table));
    if (strcmp(tensor->name, "lm_head.weight") == 0) /* the first in order of name */
        memcpy(table, values, sizeof table);
    if (strcmp(tensor->name, "model.embed_tokens.weight") == 0)
        memcpy(values, table, sizeof table);
}

/* The weights decide whether the head is the embedding, whatever config.json says of them. */
TEST(a_head_and_an_embedding)
{
    static const char model[] = "origin/checkpoints/step-00000005/model.safetensors";
    char folder[600];
    origins t;
    origin();
    snprintf(folder, sizeof folder, "%s", test_path("tied"));
    CHECK_OK(sl_dir_create(test_path("tied")));
    char *text = get("origin/checkpoints/step-00000005/config.json"), *at = strstr(text, "false"), out[1400];
    REQUIRE(at != NULL);
    put("tied/config.json", text);
    dropped = "lm_head.weight"; /* untied, without a head: they are tied */
    rewrite(model, "tied/model.safetensors", NULL, NULL);
    test_expect_warnings(TEST_ANY, "has no lm_head.weight");
    report_of(format("model '%s'", folder), &t);
    CHECK(t.tensors == 20 && t.left_out == 0);
    char tied_hash[32];
    snprintf(tied_hash, sizeof tied_hash, "%s", t.hash);

    memcpy(at, "true ", 5); /* tie_word_embeddings, the only one */
    CHECK_CONTAINS(text, "\"tie_word_embeddings\": true");
    put("tied/config.json", text);
    report_of(format("model '%s'", folder), &t); /* as it says */
    CHECK(t.tensors == 20 && t.left_out == 0);
    CHECK_STR(t.hash, tied_hash);

    dropped = NULL; /* tied, but the file has a head of its own: it is kept, and the checkpoint tells so */
    rewrite(model, "tied/model.safetensors", NULL, NULL);
    snprintf(out, sizeof out, "model '%s' out '%s'", folder, test_path("untied"));
    report_of(out, &t);
    CHECK(t.tensors == 21 && t.left_out == 0);
    CHECK_STR(t.hash, origin()->hash);
    sl_free(text);

    rewrite(model, "tied/model.safetensors", NULL, tie); /* a copy */
    report_of(format("model '%s'", folder), &t);
    CHECK_STR(t.names, "lm_head.weight");
    CHECK(t.tensors == 20 && t.left_out == 1);
    report_of(format("model '%s' from-scratch true", folder), &t); /* weights that are not used decide nothing */
    CHECK_STR(t.from, "random");
}

/* Nothing waits for a pipe's other end. */
TEST(only_regular_files)
{
    static const char *const names[] = {"config.json", "model.safetensors", "model.safetensors.index.json"};
    char path[600], *config = get("origin/checkpoints/step-00000005/config.json");
    alarm(60);
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        for (int folder = 0; folder < 2; folder++) {
            if (sl_dir_exists(test_path("pipes")))
                CHECK_OK(sl_dir_remove(test_path("pipes")));
            CHECK_OK(sl_dir_create(test_path("pipes")));
            if (i > 0)
                put("pipes/config.json", config);
            snprintf(path, sizeof path, "%s/%s", test_path("pipes"), names[i]);
            if (folder)
                CHECK_OK(sl_dir_create(path));
            else
                REQUIRE(mkfifo(path, 0600) == 0);
            refused_job(format("model '%s'", test_path("pipes")), SL_E_IO,
                        folder ? "it is a folder" : "named pipe (FIFO)");
            CHECK_CONTAINS(sl_error_message(), names[i]);
        }
    sl_job *job = make_job("");
    snprintf(path, sizeof path, "%s", test_path("pipe"));
    REQUIRE(mkfifo(path, 0600) == 0);
    CHECK_FAILS(sl_job_set(job, "config", path), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "named pipe (FIFO)");
    sl_job_destroy(job);
    refused_job(format("hw '%s'", path), SL_E_IO, "named pipe (FIFO)");
    alarm(0);
    sl_free(config);
}

TEST(a_resumed_run_reports_it)
{
    origins t;
    outcome run;
    char folder[600], options[1400];
    origin();
    snprintf(folder, sizeof folder, "%s", test_path(checkpoint));
    snprintf(options, sizeof options, "model '%s' steps 2 out '%s'", folder, test_path("second"));
    run_job(options, 1, &run); /* stops without a checkpoint */
    snprintf(options, sizeof options, "model '%s' steps 2 out '%s'", folder, test_path("second"));
    run_job(options, 100, &run);
    char *log = get("second/events.jsonl");
    CHECK_CONTAINS(log, format("\"weights\":{\"from\":\"files\",\"path\":\"%s\",\"tensors\":21", folder));
    sl_free(log);
    /* Its beginning is not read again, and need not be there. */
    CHECK_OK(sl_rename_durable(test_path("origin/checkpoints/step-00000005/model.safetensors"), test_path("away")));
    snprintf(options, sizeof options, "model '%s' steps 3 resume true out '%s'", folder, test_path("second"));
    report_of(options, &t);
    CHECK_STR(t.from, "checkpoint");
    CHECK_I64(t.step, 2);
    CHECK_STR(t.hash, run.hash);
    CHECK_STR(t.began, format("%s: 21 tensors, F32", folder));
    CHECK_STR(t.line, format("the checkpoint of step 2; the run began with %s: 21 tensors, F32", folder));
    CHECK_OK(sl_rename_durable(test_path("away"), test_path("origin/checkpoints/step-00000005/model.safetensors")));
}

/* ---- the order of rotated rows ---- */

enum { HEAD = 16, DIM = 64 };

static const char turned[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 256, \"initializer_range\": 0.2%s}";

static void put_config(const char *name, const char *more)
{
    put(name, format(turned, more));
}

/* From Hugging Face's order to pairs, as 0.1.0 had it, by the definition: pair i is rows i and i + HEAD / 2 of a head. */
static void to_pairs(const sl_tensor *tensor, float *values)
{
    float head[HEAD * DIM];
    if (!strstr(tensor->name, "q_proj") && !strstr(tensor->name, "k_proj"))
        return;
    for (int64_t h = 0; h < tensor->dim[0] / HEAD; h++) {
        float *at = values + h * HEAD * DIM;
        for (int64_t i = 0; i < HEAD / 2; i++) {
            memcpy(head + 2 * i * DIM, at + i * DIM, DIM * 4);
            memcpy(head + (2 * i + 1) * DIM, at + (i + HEAD / 2) * DIM, DIM * 4);
        }
        memcpy(at, head, sizeof head);
    }
}

static void replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    REQUIRE(at != NULL && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
}

/* Sets size and hash of a file right in the text of a state.json. */
static void record_file(char *text, const char *folder, const char *name)
{
    static char scratch[1 << 16];
    char path[600], key[64];
    int64_t bytes, old;
    uint64_t hash;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(sl_checkpoint_file_hash(test_path(path), scratch, sizeof scratch, &bytes, &hash));
    snprintf(key, sizeof key, "\"%s\":{\"bytes\":%%" PRId64, name);
    char *at = strstr(text, format("\"%s\":{", name));
    REQUIRE(at != NULL && sscanf(at, key, &old) == 1);
    char *digits = strstr(at, "\"bytes\":") + 8, *end = digits + strspn(digits, "0123456789"), number[32];
    snprintf(number, sizeof number, "%" PRId64, bytes);
    memmove(digits + strlen(number), end, strlen(end) + 1);
    memcpy(digits, number, strlen(number));
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, hash);
    memcpy(strstr(digits, "\"hash\":\"") + 8, hex, 16);
}

/* Makes a checkpoint what 0.1.0 would have written. */
static void make_old(const char *folder)
{
    char name[4][300], *text = malloc(1 << 16), hex[17];
    const char *files[] = {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"};
    for (int i = 0; i < 4; i++)
        snprintf(name[i], sizeof name[i], "%s/%s", folder, files[i]);
    REQUIRE(text != NULL);
    put_config(name[0], ", \"rope_interleaved\": true");
    rewrite(name[1], name[1], NULL, to_pairs);
    rewrite(name[2], name[2], NULL, to_pairs);
    char *state = get(name[3]);
    snprintf(text, 1 << 16, "%s", state);
    sl_free(state);
    replace(text, "\"version\":2", "\"version\":1");
    for (int i = 0; i < 3; i++)
        record_file(text, folder, files[i]);
    char *self = strstr(text, ",\"checksum\":\"");
    REQUIRE(self != NULL);
    snprintf(hex, sizeof hex, "%016" PRIx64, sl_hash64(text, (size_t) (self - text), 0));
    memcpy(self + 13, hex, 16);
    put(name[3], text);
    free(text);
}

TEST(interleaved_rotation)
{
    outcome whole, part, rest, as_llama;
    char config[300], run[300], folder[300], plain[300], options[1400], *text;
    snprintf(config, sizeof config, "%s", test_path("turned.json"));
    snprintf(run, sizeof run, "%s", test_path("turned"));
    snprintf(folder, sizeof folder, "%s", test_path("turned/checkpoints/step-00000003"));
    snprintf(plain, sizeof plain, "%s", test_path("plain"));
    put_config("turned.json", ", \"sluice_rope_order\": \"interleaved\"");
    snprintf(options, sizeof options, "model '%s' steps 6 schedule constant warmup 0", config);
    run_job(options, 100, &whole);
    snprintf(options, sizeof options, "model '%s' steps 3 schedule constant warmup 0 out '%s'", config, run);
    run_job(options, 100, &part);

    /* As any reader of Hugging Face's format would take it: the loss goes on where it was. */
    CHECK_OK(sl_dir_create(plain));
    text = get("turned/checkpoints/step-00000003/config.json");
    CHECK_CONTAINS(text, "\"LlamaForCausalLM\"");
    char *line = strstr(text, "\"sluice_rope_order\": \"interleaved\",");
    REQUIRE(line != NULL);
    memset(line, ' ', strlen("\"sluice_rope_order\": \"interleaved\","));
    put("plain/config.json", text);
    sl_free(text);
    rewrite("turned/checkpoints/step-00000003/model.safetensors", "plain/model.safetensors", NULL, NULL);
    double want[2];
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, "model '%s' steps 1 lr 0 warmup 0", i ? plain : folder);
        run_job(options, 1, &as_llama);
        want[i] = as_llama.loss[0];
    }
    CHECK(part.loss[0] - want[0] > 0.01); /* it has learned */
    CHECK_NEAR(want[1], want[0], 1e-5 * want[0]);

    /* Resumed, to the bit; from what 0.1.0 wrote, too. */
    for (int old = 0; old < 2; old++) {
        if (old) {
            CHECK_OK(sl_dir_remove(test_path("turned/checkpoints/step-00000006")));
            make_old("turned/checkpoints/step-00000003");
            snprintf(options, sizeof options, "model '%s' steps 1 lr 0 warmup 0", folder);
            run_job(options, 1, &as_llama);
            CHECK(as_llama.loss[0] == want[0]);
            snprintf(options, sizeof options, "model '%s' init-from '%s'", plain, folder);
            refused_job(options, SL_E_FORMAT, "\"rope_interleaved\": true, but model llama rotates halves");
        }
        snprintf(options, sizeof options, "model '%s' steps 6 schedule constant warmup 0 resume true out '%s'", config,
                 run);
        run_job(options, 100, &rest);
        CHECK_I64(rest.view.first_step, 3);
        CHECK_STR(rest.hash, whole.hash);
        CHECK(memcmp(rest.loss, whole.loss + 3, 3 * sizeof *rest.loss) == 0);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(weights_in_the_models_folder_are_used);
    RUN(what_is_left_out_or_wrong_is_named);
    RUN(a_head_and_an_embedding);
    RUN(only_regular_files);
    RUN(a_resumed_run_reports_it);
    RUN(interleaved_rotation);
    return test_end();
}
