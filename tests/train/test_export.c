/* A run's weights as a folder of their own: the same values in each dtype, the master weights where there are some, any Hugging Face
 * folder in, and never half a folder, whatever fails. */
#include "core/bf16.h"
#include "core/fault.h"
#include "core/small_float.h"
#include "run_job.h"
#include "train/export.h"

enum { MOST = 1 << 15 };
static char run[300], checkpoint[400]; /* with bf16 weights and f32 master weights */

static void make_run(void)
{
    char options[500];
    outcome done;
    snprintf(run, sizeof run, "%s", test_path("run"));
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoints/step-00000005", run);
    if (sl_dir_exists(run))
        return;
    snprintf(options, sizeof options, "precision bf16-master out '%s'", run);
    run_job(options, 100, &done);
    char path[500];
    snprintf(path, sizeof path, "%s/tokenizer.json", checkpoint);
    CHECK_OK(sl_file_write_atomic(path, "{}", 2));
}

static sl_tensors *open_in(const char *folder, const char *name)
{
    char path[600];
    sl_tensors *tensors;
    snprintf(path, sizeof path, "%s%s%s", folder, name[0] ? "/" : "", name);
    CHECK_OK(sl_tensors_open(path, &tensors));
    return tensors;
}

static float rounded(sl_file_dtype dtype, float value)
{
    return dtype == SL_FILE_BF16  ? sl_bf16_to_f32(sl_f32_to_bf16(value))
           : dtype == SL_FILE_F16 ? sl_f16_to_f32(sl_f32_to_f16(value))
                                  : value;
}

/* Every tensor of `folder` has the values of `from` under its name behind `prefix`, rounded to `dtype`. */
static void check_values(const char *folder, sl_tensors *from, const char *prefix, sl_file_dtype dtype)
{
    static float got[MOST], want[MOST];
    sl_tensors *tensors = open_in(folder, "");
    CHECK(sl_tensors_count(tensors) == 21);
    CHECK_STR(sl_tensors_metadata(tensors, "format"), "pt");
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
        char name[200];
        const sl_tensor *tensor = sl_tensors_at(tensors, i);
        snprintf(name, sizeof name, "%s%s", prefix, tensor->name);
        const sl_tensor *original = sl_tensors_find(from, name);
        REQUIRE(original && original->count == tensor->count && tensor->count <= MOST);
        CHECK(tensor->dtype == dtype);
        CHECK_OK(sl_tensors_read(tensors, tensor, 0, tensor->count, SL_F32, got));
        CHECK_OK(sl_tensors_read(from, original, 0, tensor->count, SL_F32, want));
        int64_t equal = 0;
        for (int64_t e = 0; e < tensor->count; e++)
            equal += got[e] == rounded(dtype, want[e]);
        CHECK_MSG(equal == tensor->count, "%s: %s", folder, tensor->name);
    }
    sl_tensors_close(tensors);
}

static void check_config(const char *folder, const char *part)
{
    char path[500], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/config.json", folder);
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    CHECK_CONTAINS(text, part);
    sl_free(text);
}

TEST(dtypes)
{
    static const struct {
        const char *out, *in_config;
        sl_file_dtype dtype;
        bool masters;
    } cases[] = {{"bf16", "\"torch_dtype\": \"bfloat16\"", SL_FILE_BF16, false},
                 {"f32", "\"torch_dtype\": \"float32\"", SL_FILE_F32, true},
                 {"f16", "\"torch_dtype\": \"float16\"", SL_FILE_F16, true}};
    make_run();
    sl_tensors *weights = open_in(checkpoint, "model.safetensors");
    sl_tensors *optimizer = open_in(checkpoint, "optimizer.safetensors");
    check_config(checkpoint, "\"torch_dtype\": \"bfloat16\"");
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        char out[400], path[500];
        sl_exported done;
        snprintf(out, sizeof out, "%s", test_path(cases[i].out));
        sl_export_config config = {.from = i ? checkpoint : run, .out = out, .converts = true, .dtype = cases[i].dtype};
        config.shard_bytes = i == 1 ? 100000 : 0;
        CHECK_OK(sl_export(&config, &done));
        CHECK_STR(done.from, checkpoint);
        CHECK(done.masters == (cases[i].masters ? 21 : 0) && done.tensors == 21);
        CHECK(i == 1 ? done.files > 3 : done.files == 1);
        check_values(out, cases[i].masters ? optimizer : weights, cases[i].masters ? "master." : "", cases[i].dtype);
        check_config(out, cases[i].in_config);
        snprintf(path, sizeof path, "%s/tokenizer.json", out);
        CHECK(sl_file_exists(path));
        snprintf(path, sizeof path, "%s/optimizer.safetensors", out);
        CHECK(!sl_file_exists(path));
    }
    sl_tensors_close(weights);
    sl_tensors_close(optimizer);
}

/* As they are; what was exported can be exported again, and trained. */
TEST(as_they_are)
{
    char first[400], second[400], options[900];
    sl_exported done;
    outcome trained;
    make_run();
    snprintf(first, sizeof first, "%s", test_path("same"));
    snprintf(second, sizeof second, "%s/", test_path("again"));
    CHECK_OK(sl_export(&(sl_export_config){.from = run, .out = first}, &done));
    CHECK(done.dtype == SL_FILE_BF16);
    CHECK_OK(sl_export(&(sl_export_config){.from = first, .out = second}, &done));
    sl_tensors *weights = open_in(checkpoint, "model.safetensors");
    check_values(second, weights, "", SL_FILE_BF16);
    sl_tensors_close(weights);
    snprintf(options, sizeof options, "model '%s' steps 1 data-format bytes", second); /* its tokenizer.json is none */
    run_job(options, 100, &trained);
    CHECK(isfinite(trained.loss[0]));
}

static void refused(const char *from, const char *out, sl_status want, const char *part)
{
    sl_exported done;
    sl_export_config config = {.from = from, .out = out, .converts = true, .dtype = SL_FILE_F16};
    CHECK_FAILS(sl_export(&config, &done), want);
    CHECK_CONTAINS(sl_error_message(), part);
}

TEST(refusals)
{
    char out[400], other[400], path[600];
    make_run();
    snprintf(out, sizeof out, "%s", test_path("refused"));
    snprintf(other, sizeof other, "%s", test_path("other"));
    CHECK_OK(sl_dir_create(out));
    sl_exported done;
    CHECK_OK(sl_export(&(sl_export_config){.from = run, .out = out}, &done)); /* an empty folder will do */
    refused(run, out, SL_E_USAGE, "not empty");
    snprintf(path, sizeof path, "%s/config.json", out);
    refused(run, path, SL_E_USAGE, "no folder");
    refused(path, other, SL_E_USAGE, "is no folder");
    refused(test_dir(), other, SL_E_USAGE, "neither a config.json nor checkpoints");
    refused("no/such", other, SL_E_USAGE, "hf download no/such");
    refused(run, "", SL_E_USAGE, "--out");
    /* An adapter is no model. */
    char options[900], adapter[400];
    outcome adapted;
    snprintf(adapter, sizeof adapter, "%s", test_path("adapter"));
    snprintf(options, sizeof options, "model '%s' lora-rank 2 steps 1 data-format bytes out '%s'", out, adapter);
    run_job(options, 100, &adapted);
    refused(adapter, other, SL_E_USAGE, "sluice merge --model BASE --adapter");
    snprintf(path, sizeof path, "%s/checkpoints/step-00000001", adapter);
    refused(path, other, SL_E_USAGE, "sluice merge --model BASE --adapter");
    /* A weight beyond the range of f16. */
    sl_tensors_writer *writer;
    static float values[MOST];
    sl_tensors *weights = open_in(checkpoint, "model.safetensors");
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    CHECK_OK(sl_tensors_writer_open(path, &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < sl_tensors_count(weights); i++) {
            const sl_tensor *t = sl_tensors_at(weights, i);
            values[3] = 70000;
            if (pass)
                CHECK_OK(sl_tensors_writer_write(writer, values, (size_t) t->count * 4));
            else
                CHECK_OK(sl_tensors_writer_declare(writer, t->name, SL_FILE_F32, t->rank, t->dim));
        }
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    sl_tensors_close(weights);
    refused(out, other, SL_E_NOT_FINITE, "is 70000 at element 3, too large for F16");
    CHECK(!sl_dir_exists(other));
}

/* The k-th of each kind of event fails: there is a whole folder or none, and nothing beside it. */
TEST(faults)
{
    char out[400], temporary[420];
    make_run();
    snprintf(out, sizeof out, "%s", test_path("faulty"));
    snprintf(temporary, sizeof temporary, "%s.tmp", out);
    sl_export_config config = {
        .from = checkpoint, .out = out, .converts = true, .dtype = SL_FILE_F16, .shard_bytes = 100000};
    sl_tensors *optimizer = open_in(checkpoint, "optimizer.safetensors");
    test_expect_warnings(TEST_ANY, "tokenizer.json");
    for (sl_fault_kind kind = 0; kind < SL_FAULT_COUNT; kind++) {
        int64_t events = 1, failed = 0;
        for (int64_t nth = 0; nth <= events; nth++) {
            sl_exported done;
            sl_fault_arm(kind, nth ? nth : 1 << 30);
            sl_status status = sl_export(&config, &done);
            events = nth ? events : sl_fault_events(kind);
            sl_fault_arm(kind, 0);
            CHECK_MSG(status == SL_OK || sl_error_message()[0], "event %lld of kind %d", (long long) nth, kind);
            failed += status != SL_OK;
            CHECK(!sl_dir_exists(temporary));
            CHECK(status != SL_OK || sl_dir_exists(out));
            if (sl_dir_exists(out)) {
                check_values(out, optimizer, "master.", SL_FILE_F16);
                CHECK_OK(sl_dir_remove(out));
            }
        }
        CHECK(events > 0 && failed > 0);
    }
    sl_tensors_close(optimizer);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(dtypes);
    RUN(as_they_are);
    RUN(refusals);
    RUN(faults);
    return test_end();
}
