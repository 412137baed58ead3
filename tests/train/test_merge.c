/* Merged models: as good as the adapter beside its model, for every dtype of weights, matrices stored either way, and models in several
 * files; what does not belong together is refused. */
#include <math.h>

#include "core/bf16.h"
#include "core/small_float.h"
#include "model/lora.h"
#include "model/safetensors.h"
#include "run_job.h"
#include "train/merge.h"

enum { ROW = 17, SEQUENCES = 2 };

static const char *const folders[] = {"lora-llama", "lora-qwen3", "lora-gpt2"};

static void golden_path(const char *folder, const char *file, char out[600])
{
    snprintf(out, 600, "%s/tests/golden/%s%s%s", SL_SOURCE_DIR, folder, file[0] ? "/" : "", file);
}

/* `name` in the test's folder, which is not there. */
static const char *fresh(const char *name)
{
    CHECK_OK(sl_dir_remove(test_path(name)));
    return test_path(name);
}

static void copy_text(const char *from, const char *folder, const char *name)
{
    char path[900], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(sl_file_read_all(from, 1 << 16, &text, &length));
    CHECK_OK(sl_file_write_atomic(path, text, length));
    sl_free(text);
}

/* The golden run's last adapter as a folder. */
static void final_adapter(const char *folder, char out[600])
{
    static float values[8192];
    char path[600], to[900];
    sl_tensors *golden;
    sl_tensors_writer *writer;
    snprintf(out, 600, "%s", fresh(folder));
    CHECK_OK(sl_dir_create(out));
    golden_path(folder, "adapter/" SL_LORA_CONFIG, path);
    copy_text(path, out, SL_LORA_CONFIG);
    golden_path(folder, "golden.safetensors", path);
    CHECK_OK(sl_tensors_open(path, &golden));
    snprintf(to, sizeof to, "%s/" SL_LORA_WEIGHTS, out);
    CHECK_OK(sl_tensors_writer_open(to, &writer));
    for (int write = 0; write < 2; write++)
        for (int64_t i = 0; i < sl_tensors_count(golden); i++) {
            const sl_tensor *t = sl_tensors_at(golden, i);
            if (strncmp(t->name, "final.", 6) != 0)
                continue;
            if (!write)
                CHECK_OK(sl_tensors_writer_declare(writer, t->name + 6, SL_FILE_F32, t->rank, t->dim));
            else
                CHECK_OK(sl_tensors_read(golden, t, 0, t->count, SL_F32, values));
            if (write)
                CHECK_OK(sl_tensors_writer_write(writer, values, (size_t) t->bytes));
        }
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    sl_tensors_close(golden);
}

/* The golden model with weights of another dtype, in files of at most `shard_bytes`. */
static void convert_model(const char *folder, sl_file_dtype dtype, int64_t shard_bytes, char out[600])
{
    static float values[1 << 14];
    static uint16_t rounded[1 << 14];
    char path[600], to[900];
    sl_tensors *golden;
    sl_tensors_writer *writer;
    snprintf(out, 600, "%s", fresh("converted"));
    CHECK_OK(sl_dir_create(out));
    golden_path(folder, "config.json", path);
    copy_text(path, out, "config.json");
    golden_path(folder, "model.safetensors", path);
    CHECK_OK(sl_tensors_open(path, &golden));
    snprintf(to, sizeof to, "%s/model.safetensors", out);
    CHECK_OK(sl_tensors_writer_open(to, &writer));
    sl_tensors_writer_split(writer, shard_bytes);
    for (int64_t i = 0; i < sl_tensors_count(golden); i++) {
        const sl_tensor *t = sl_tensors_at(golden, i);
        CHECK_OK(sl_tensors_writer_declare(writer, t->name, dtype, t->rank, t->dim));
    }
    for (int64_t i = 0; i < sl_tensors_count(golden); i++) {
        const sl_tensor *t = sl_tensors_at(golden, i);
        CHECK_OK(sl_tensors_read(golden, t, 0, t->count, SL_F32, values));
        for (int64_t e = 0; e < t->count; e++)
            rounded[e] = dtype == SL_FILE_F16 ? sl_f32_to_f16(values[e]) : sl_f32_to_bf16(values[e]);
        CHECK_OK(sl_tensors_writer_write(writer, dtype == SL_FILE_F32 ? (const void *) values : rounded,
                                         (size_t) t->count * sl_file_dtype_bytes(dtype)));
    }
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    sl_tensors_close(golden);
}

static sl_status read_last(void *user, sl_sequence *s)
{
    memcpy(s->tokens, (const int32_t *) user + s->index * ROW, ROW * sizeof *s->tokens);
    return SL_OK;
}

/* What a model loses on the data of the golden run's last step. */
static double last_loss(const char *golden_folder, const char *model, double *want)
{
    static int32_t tokens[SEQUENCES * ROW];
    const sl_data data = {.struct_size = sizeof data,
                          .read = read_last,
                          .user = tokens,
                          .identity = "last",
                          .sequences = SEQUENCES,
                          .in_order = 1};
    char path[600], options[900];
    sl_tensors *golden;
    sl_trainer *t;
    sl_step_result got = SL_SIZED(sl_step_result);
    float last;
    golden_path(golden_folder, "golden.safetensors", path);
    CHECK_OK(sl_tensors_open(path, &golden));
    const sl_tensor *all = sl_tensors_find(golden, "data");
    CHECK_OK(sl_tensors_read(golden, all, all->count - SL_COUNT(tokens), SL_COUNT(tokens), SL_I32, tokens));
    CHECK_OK(sl_tensors_read(golden, sl_tensors_find(golden, "last"), 0, 1, SL_F32, &last));
    sl_tensors_close(golden);
    sl_job *job;
    CHECK_OK(sl_job_create(&job));
    snprintf(options, sizeof options, "%s", model);
    CHECK_OK(sl_job_set(job, "model", options));
    CHECK_OK(sl_job_set(job, "seqlen", "16"));
    CHECK_OK(sl_job_set(job, "tokens-per-step", "32"));
    CHECK_OK(sl_job_set(job, "precision", "f32"));
    CHECK_OK(sl_job_set(job, "costs", "roofline"));
    CHECK_OK(sl_job_set(job, "device", "cpu"));
    CHECK_OK(sl_job_set_data(job, &data));
    CHECK_OK(sl_trainer_create(job, &t));
    CHECK_OK(sl_trainer_step(t, &got));
    sl_trainer_destroy(t);
    sl_job_destroy(job);
    *want = (double) last;
    return got.loss;
}

/* In f32 the merged model loses what PEFT's model with the adapter does. */
TEST(as_good_as_the_adapter)
{
    for (int i = 0; i < SL_COUNT(folders); i++) {
        char model[600], adapter[600], out[600];
        sl_merged merged;
        double want, got;
        golden_path(folders[i], "", model);
        final_adapter(folders[i], adapter);
        snprintf(out, sizeof out, "%s", fresh("merged"));
        CHECK_OK(sl_merge(model, adapter, out, 2, &merged));
        CHECK(merged.modules == (i == 0 ? 14 : 6) && merged.tensors > merged.modules);
        got = last_loss(folders[i], out, &want);
        printf("     %s: %.7g, PEFT %.7g\n", folders[i], got, want);
        CHECK_NEAR(got, want, 5e-6);
        CHECK_FAILS(sl_merge(model, adapter, out, 2, &merged), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), "already there");
    }
}

/* Weights of 16 bits: the exact sum, rounded once. Unchanged tensors keep their bytes, and files their names. */
static void check_rounding(sl_file_dtype dtype, int64_t shard_bytes, double half_ulp)
{
    static float before[1 << 14], exact[1 << 14], after[1 << 14];
    char model[600], adapter[600], out[600], plain[600], f32[600];
    sl_merged merged;
    sl_tensors *a, *b, *c;
    int64_t changed = 0;
    final_adapter("lora-llama", adapter);
    convert_model("lora-llama", dtype, shard_bytes, model);
    snprintf(out, sizeof out, "%s", fresh("merged"));
    CHECK_OK(sl_merge(model, adapter, out, 3, &merged));
    golden_path("lora-llama", "", plain); /* its weights are bf16 values: all three dtypes hold them nearly exactly */
    snprintf(f32, sizeof f32, "%s", fresh("exact"));
    CHECK_OK(sl_merge(plain, adapter, f32, 1, &merged));
    CHECK_OK(sl_tensors_open(model, &a));
    CHECK_OK(sl_tensors_open(f32, &b));
    CHECK_OK(sl_tensors_open(out, &c));
    CHECK_I64(sl_tensors_count(c), sl_tensors_count(a));
    for (int64_t i = 0; i < sl_tensors_count(c); i++) {
        const sl_tensor *t = sl_tensors_at(c, i), *from = sl_tensors_at(a, i);
        CHECK_STR(t->name, from->name);
        CHECK(t->dtype == dtype && t->file == from->file);
        CHECK_OK(sl_tensors_read(a, from, 0, t->count, SL_F32, before));
        CHECK_OK(sl_tensors_read(b, sl_tensors_find(b, t->name), 0, t->count, SL_F32, exact));
        CHECK_OK(sl_tensors_read(c, t, 0, t->count, SL_F32, after));
        const bool same = memcmp(before, after, (size_t) t->count * sizeof *after) == 0;
        changed += !same;
        CHECK(same == (strstr(t->name, "_proj") == NULL));
        for (int64_t e = 0; e < t->count; e++)
            CHECK_MSG(fabs((double) after[e] - exact[e]) <= fmax(half_ulp * fabs((double) exact[e]), 1e-7), "%s[%lld]",
                      t->name, (long long) e);
    }
    CHECK_I64(changed, 14);
    sl_tensors_close(a);
    sl_tensors_close(b);
    sl_tensors_close(c);
}

TEST(rounded_once)
{
    check_rounding(SL_FILE_F32, 0, 1e-7);
    check_rounding(SL_FILE_F16, 0, 0x1.01p-11);
    check_rounding(SL_FILE_BF16, 0, 0x1.01p-8);
    check_rounding(SL_FILE_BF16, 8000, 0x1.01p-8); /* several files and their index */
}

TEST(what_does_not_belong_together)
{
    char model[600], adapter[600], out[600];
    sl_merged merged;
    snprintf(out, sizeof out, "%s", fresh("refused"));
    golden_path("lora-qwen3", "", model);
    golden_path("lora-llama", "adapter", adapter);
    CHECK_FAILS(sl_merge(model, adapter, out, 1, &merged), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "does the adapter belong to another model?");
    golden_path("lora-gpt2", "", model);
    CHECK_FAILS(sl_merge(model, adapter, out, 1, &merged), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "has no place for tensor");
    CHECK_FAILS(sl_merge("/nowhere", adapter, out, 1, &merged), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "/nowhere is no folder");
    CHECK_FAILS(sl_merge(model, model, out, 1, &merged), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), SL_LORA_CONFIG);
    CHECK(!sl_dir_exists(out));
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(as_good_as_the_adapter);
    RUN(rounded_once);
    RUN(what_does_not_belong_together);
    return test_end();
}
