/* Parameters by name: the same names, shapes and bytes as in checkpoints, wherever a plan keeps them, and what is
 * written is what trains. */
#include <math.h>

#include "model/safetensors.h"
#include "run_job.h"

enum { MOST = 64 };

/* All parameters of a trainer in one format. */
typedef struct parameters {
    sl_parameter_info info[MOST];
    void *values[MOST];
    size_t bytes[MOST];
    int64_t count;
} parameters;

static void read_all(sl_trainer *t, sl_parameter_format format, parameters *all)
{
    all->count = sl_trainer_parameter_count(t);
    REQUIRE(all->count <= MOST);
    for (int64_t i = 0; i < all->count; i++) {
        all->info[i] = (sl_parameter_info) SL_SIZED(sl_parameter_info);
        CHECK_OK(sl_trainer_parameter(t, i, &all->info[i]));
        all->bytes[i] = format == SL_PARAMETER_F32 ? (size_t) all->info[i].count * 4 : all->info[i].stored_bytes;
        CHECK_OK(sl_alloc(&all->values[i], 1, all->bytes[i]));
        CHECK_OK(sl_trainer_read_parameter(t, all->info[i].name, format, all->values[i], all->bytes[i]));
    }
}

static void write_all(sl_trainer *t, sl_parameter_format format, const parameters *all)
{
    for (int64_t i = 0; i < all->count; i++)
        CHECK_OK(sl_trainer_write_parameter(t, all->info[i].name, format, all->values[i], all->bytes[i]));
}

static bool same_values(const parameters *a, const parameters *b)
{
    bool same = a->count == b->count;
    for (int64_t i = 0; i < a->count && same; i++)
        same = a->bytes[i] == b->bytes[i] && memcmp(a->values[i], b->values[i], a->bytes[i]) == 0;
    return same;
}

static void free_all(parameters *all)
{
    for (int64_t i = 0; i < all->count; i++)
        sl_free(all->values[i]);
}

static void take_steps(sl_trainer *t, int steps)
{
    sl_step_result result = SL_SIZED(sl_step_result);
    for (int i = 0; i < steps; i++)
        CHECK_OK(sl_trainer_step(t, &result));
}

/* Tokens for the golden models, whose vocabularies are smaller than a byte's. */
static const char *shard_path(void)
{
    enum { TOKENS = 1000 };
    static char path[512];
    struct {
        int32_t header[256];
        uint16_t tokens[TOKENS];
    } shard = {.header = {20240520, 1, TOKENS}};
    for (int i = 0; i < TOKENS; i++)
        shard.tokens[i] = (uint16_t) (i * i % 53);
    snprintf(path, sizeof path, "%s", test_path("tokens.bin"));
    CHECK_OK(sl_file_write_atomic(path, &shard, sizeof shard));
    return path;
}

/* A golden model's folder: small, with heads in pairs (llama-tied) or matrices transposed (gpt2). */
static const char *golden(const char *name)
{
    static char options[1200];
    snprintf(options, sizeof options,
             "model '%s/tests/golden/%s' from-scratch true data '%s' seqlen 16 tokens-per-step 64 chunk-tokens 32",
             SL_SOURCE_DIR, name, shard_path());
    return options;
}

/* ---- names, shapes and bytes ---- */

static void check_checkpoint(sl_trainer *t, const char *out)
{
    char path[1200];
    sl_tensors *tensors;
    parameters stored, floats;
    int64_t step;
    sl_trainer_figures figures = SL_SIZED(sl_trainer_figures);
    CHECK_OK(sl_trainer_checkpoint(t));
    CHECK_OK(sl_trainer_get(t, &figures));
    step = figures.checkpoint_step;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08lld/model.safetensors", out, (long long) step);
    CHECK_OK(sl_tensors_open(path, &tensors));
    read_all(t, SL_PARAMETER_STORED, &stored);
    read_all(t, SL_PARAMETER_F32, &floats);
    CHECK_I64(stored.count, sl_tensors_count(tensors));
    for (int64_t i = 0; i < stored.count; i++) {
        const sl_parameter_info *info = &stored.info[i];
        const sl_tensor *tensor = sl_tensors_find(tensors, info->name);
        REQUIRE(tensor != NULL);
        CHECK_MSG(tensor->dim[0] == info->rows && tensor->rank == (info->columns ? 2 : 1) &&
                      (!info->columns || tensor->dim[1] == info->columns) && tensor->count == info->count,
                  "%s is %lld x %lld", info->name, (long long) info->rows, (long long) info->columns);
        void *bytes;
        CHECK_OK(sl_alloc(&bytes, 1, info->stored_bytes));
        CHECK_OK(sl_tensors_read_raw(tensors, tensor, 0, bytes, info->stored_bytes));
        CHECK_MSG(memcmp(bytes, stored.values[i], info->stored_bytes) == 0, "%s has other bytes", info->name);
        for (int64_t k = 0; k < info->count; k++) { /* the weight is the float rounded */
            float rounded = 0;
            sl_dtype dtype = strcmp(info->dtype, "bf16") == 0 ? SL_BF16 : SL_F32;
            sl_dtype_store(dtype, &rounded, 0, ((float *) floats.values[i])[k]);
            REQUIRE(sl_dtype_load(dtype, bytes, k) == sl_dtype_load(dtype, &rounded, 0));
        }
        sl_free(bytes);
    }
    free_all(&stored);
    free_all(&floats);
    sl_tensors_close(tensors);
}

TEST(as_in_checkpoints)
{
    static const char *const models[] = {"llama", "llama-tied", "gpt2", "qwen3"};
    static const char *const precisions[] = {"f32", "bf16", "bf16-master"};
    for (int m = 0; m < SL_COUNT(models); m++)
        for (int p = 0; p < SL_COUNT(precisions); p++) {
            char name[64], options[1800];
            sl_trainer *t;
            snprintf(name, sizeof name, "parameters-%d-%d", m, p);
            snprintf(options, sizeof options, "%s precision %s out '%s'", golden(models[m]), precisions[p],
                     test_path(name));
            sl_job *job = make_job(options);
            CHECK_OK(sl_trainer_create(job, &t));
            sl_job_destroy(job);
            check_checkpoint(t, test_path(name));
            sl_trainer_destroy(t);
        }
}

/* ---- what is written is what trains ---- */

/* On the device, or as far on the host as a budget can force it. */
static const char *const budgets[] = {"", "device-mem 600KiB"};

/* A run whose parameters are overwritten with noise and set back goes on as if nothing had happened. Stored bytes are
 * the whole of it where there is no master weight. */
static void check_rewritten(const char *options, sl_parameter_format format, bool whole)
{
    sl_trainer *t;
    outcome out, plain;
    parameters kept, noise, again;
    run_job(options, 100, &plain);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    take_steps(t, 2);
    read_all(t, format, &kept);
    read_all(t, SL_PARAMETER_F32, &noise);
    for (int64_t i = 0; i < noise.count; i++)
        for (int64_t k = 0; k < noise.info[i].count; k++)
            ((float *) noise.values[i])[k] = 1.0f / (float) (k % 7 + 3);
    write_all(t, SL_PARAMETER_F32, &noise);
    read_all(t, SL_PARAMETER_F32, &again);
    CHECK(strstr(options, "precision bf16 ") || same_values(&noise, &again));
    free_all(&again);
    write_all(t, format, &kept);
    read_all(t, format, &again);
    CHECK(same_values(&kept, &again));
    take_steps(t, 3);
    sl_trainer_look(t, &out.view);
    read_report(t, &out);
    CHECK_MSG((strcmp(out.hash, plain.hash) == 0) == whole, "%s", options);
    sl_trainer_destroy(t);
    free_all(&kept);
    free_all(&noise);
    free_all(&again);
}

TEST(written_back)
{
    char options[200];
    for (int b = 0; b < SL_COUNT(budgets); b++) {
        snprintf(options, sizeof options, "precision f32 %s", budgets[b]);
        check_rewritten(options, SL_PARAMETER_F32, true);
        check_rewritten(options, SL_PARAMETER_STORED, true);
        snprintf(options, sizeof options, "precision bf16 %s", budgets[b]);
        check_rewritten(options, SL_PARAMETER_F32, true);
        check_rewritten(options, SL_PARAMETER_STORED, true);
        snprintf(options, sizeof options, "precision bf16-master %s", budgets[b]);
        check_rewritten(options, SL_PARAMETER_F32, true);
        check_rewritten(options, SL_PARAMETER_STORED, false);
    }
}

/* The elements of a file's tensor and of ours correspond, in both directions: heads in pairs, transposed matrices. */
TEST(order_of_elements)
{
    static const char *const models[] = {"llama-tied", "gpt2"};
    for (int m = 0; m < SL_COUNT(models); m++) {
        char name[32], options[1800];
        sl_trainer *t;
        snprintf(name, sizeof name, "order-%d", m);
        snprintf(options, sizeof options, "%s precision bf16-master out '%s'", golden(models[m]), test_path(name));
        sl_job *job = make_job(options);
        parameters all;
        CHECK_OK(sl_trainer_create(job, &t));
        sl_job_destroy(job);
        read_all(t, SL_PARAMETER_F32, &all);
        for (int64_t i = 0; i < all.count; i++)
            for (int64_t k = 0; k < all.info[i].count; k++)
                ((float *) all.values[i])[k] = (float) (k % 251) / 64;
        write_all(t, SL_PARAMETER_F32, &all);
        free_all(&all);
        check_checkpoint(t, test_path(name)); /* which a parameter written anew makes necessary */
        read_all(t, SL_PARAMETER_F32, &all);
        for (int64_t i = 0; i < all.count; i++)
            for (int64_t k = 0; k < all.info[i].count; k++)
                REQUIRE(((float *) all.values[i])[k] == (float) (k % 251) / 64);
        free_all(&all);
        sl_trainer_destroy(t);
    }
}

/* The checkpoint of a step is written again for parameters that were set after it, and a resumed run has them. */
TEST(checkpoint_of_written_parameters)
{
    char options[700];
    sl_trainer *t;
    sl_trainer_figures figures = SL_SIZED(sl_trainer_figures);
    parameters before, after;
    snprintf(options, sizeof options, "steps 6 out '%s'", test_path("written"));
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    take_steps(t, 2);
    CHECK_OK(sl_trainer_checkpoint(t));
    read_all(t, SL_PARAMETER_F32, &before);
    ((float *) before.values[1])[3] += 1;
    CHECK_OK(sl_trainer_write_parameter(t, before.info[1].name, SL_PARAMETER_F32, before.values[1], before.bytes[1]));
    CHECK_OK(sl_trainer_checkpoint(t));
    sl_trainer_destroy(t);
    CHECK_OK(sl_job_set(job, "resume", "true"));
    CHECK_OK(sl_job_set(job, "device-mem", "600KiB"));
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    CHECK_OK(sl_trainer_get(t, &figures));
    CHECK_I64(figures.step, 2);
    read_all(t, SL_PARAMETER_F32, &after);
    CHECK(same_values(&before, &after));
    free_all(&before);
    free_all(&after);
    sl_trainer_destroy(t);
}

/* ---- misuse ---- */

TEST(wrong_calls)
{
    sl_trainer *t;
    sl_parameter_info info = SL_SIZED(sl_parameter_info);
    float values[64] = {0};
    const char *name = "model.norm.weight";
    sl_job *job = make_job("freeze layers.*.mlp_norm,embedding precision bf16");
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    int64_t count = sl_trainer_parameter_count(t), frozen = 0;
    CHECK_I64(count, 2 * 9 + 3); /* layers; embedding, norm, head */
    for (int64_t i = 0; i < count; i++) {
        CHECK_OK(sl_trainer_parameter(t, i, &info));
        frozen += !info.trainable;
        CHECK(info.trainable == (!strstr(info.name, "post_attention") && !strstr(info.name, "embed")));
    }
    CHECK_I64(frozen, 3);
    CHECK_FAILS(sl_trainer_parameter(t, -1, &info), SL_E_USAGE);
    CHECK_FAILS(sl_trainer_parameter(t, count, &info), SL_E_USAGE);
    info.struct_size = 0;
    CHECK_FAILS(sl_trainer_parameter(t, 0, &info), SL_E_USAGE);
    CHECK_FAILS(sl_trainer_parameter(t, 0, NULL), SL_E_USAGE);
    CHECK_OK(sl_trainer_read_parameter(t, name, SL_PARAMETER_F32, values, sizeof values));
    CHECK(values[0] == 1 && values[63] == 1);
    CHECK_FAILS(sl_trainer_read_parameter(t, NULL, SL_PARAMETER_F32, values, sizeof values), SL_E_USAGE);
    CHECK_FAILS(sl_trainer_read_parameter(t, "model.norm.wait", SL_PARAMETER_F32, values, sizeof values), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "did you mean \"model.norm.weight\"");
    CHECK_FAILS(sl_trainer_read_parameter(t, name, SL_PARAMETER_F32, values, 128), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "64 elements, 256 bytes of f32, not 128");
    CHECK_FAILS(sl_trainer_read_parameter(t, name, SL_PARAMETER_STORED, values, 256), SL_E_USAGE);
    CHECK_FAILS(sl_trainer_read_parameter(t, name, SL_PARAMETER_F32, NULL, 256), SL_E_USAGE);
    CHECK_FAILS(sl_trainer_read_parameter(t, name, (sl_parameter_format) 7, values, 256), SL_E_USAGE);
    values[1] = 5, values[2] = NAN;
    CHECK_FAILS(sl_trainer_write_parameter(t, name, SL_PARAMETER_F32, values, 256), SL_E_NOT_FINITE);
    CHECK_CONTAINS(sl_error_message(), "element 2 of \"model.norm.weight\"");
    values[2] = 3.4e38f; /* above the largest bf16 */
    CHECK_FAILS(sl_trainer_write_parameter(t, name, SL_PARAMETER_F32, values, 256), SL_E_NOT_FINITE);
    CHECK_OK(sl_trainer_read_parameter(t, name, SL_PARAMETER_F32, values, 256));
    CHECK(values[1] == 1 && values[2] == 1);
    sl_trainer_destroy(t);
}

/* A run that has become NaN can be looked at, not mended. */
TEST(failed_run)
{
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    static float table[512 * 64];
    sl_parameter_info info = SL_SIZED(sl_parameter_info);
    sl_job *job = make_job("lr 1e30 min-lr 1e30 warmup 0 schedule constant");
    sl_status status = SL_OK;
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    for (int i = 0; i < 5 && status == SL_OK; i++)
        status = sl_trainer_step(t, &result);
    CHECK_I64(status, SL_E_NOT_FINITE);
    CHECK_OK(sl_trainer_parameter(t, 0, &info));
    REQUIRE((size_t) info.count * 4 <= sizeof table);
    CHECK_OK(sl_trainer_read_parameter(t, info.name, SL_PARAMETER_F32, table, (size_t) info.count * 4));
    CHECK_FAILS(sl_trainer_write_parameter(t, info.name, SL_PARAMETER_F32, table, (size_t) info.count * 4),
                SL_E_NOT_FINITE);
    sl_trainer_destroy(t);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(as_in_checkpoints);
    RUN(written_back);
    RUN(order_of_elements);
    RUN(checkpoint_of_written_parameters);
    RUN(wrong_calls);
    RUN(failed_run);
    return test_end();
}
