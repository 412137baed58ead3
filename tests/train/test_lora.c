/* Adapters: the loss curves, gradients and final weights of PEFT, the same bits under any budget and across resumes, folders as PEFT reads
 * them, and a model below that is only read. */
#include <math.h>

#include "model/safetensors.h"
#include "plan/plan.h"
#include "run_job.h"
#include "train/run.h"

enum { STEPS = 50, SEQUENCES = 2, SEQLEN = 16, ROW = SEQLEN + 1 };

static const char *golden_path(const char *folder, const char *file)
{
    static char path[4][600];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%s/tests/golden/%s%s%s", SL_SOURCE_DIR, folder, file[0] ? "/" : "", file);
    return to;
}

typedef struct golden {
    int32_t data[STEPS * SEQUENCES * ROW];
    float loss[STEPS], norm[STEPS], last[1];
    sl_tensors *file;
} golden;

static void read_golden(const char *folder, golden *g)
{
    CHECK_OK(sl_tensors_open(golden_path(folder, "golden.safetensors"), &g->file));
    CHECK_OK(sl_tensors_read(g->file, sl_tensors_find(g->file, "data"), 0, SL_COUNT(g->data), SL_I32, g->data));
    CHECK_OK(sl_tensors_read(g->file, sl_tensors_find(g->file, "loss"), 0, STEPS, SL_F32, g->loss));
    CHECK_OK(sl_tensors_read(g->file, sl_tensors_find(g->file, "norm"), 0, STEPS, SL_F32, g->norm));
    CHECK_OK(sl_tensors_read(g->file, sl_tensors_find(g->file, "last"), 0, 1, SL_F32, g->last));
}

static sl_status read_sequence(void *user, sl_sequence *s)
{
    const golden *g = user;
    memcpy(s->tokens, g->data + s->index * ROW, ROW * sizeof *s->tokens);
    return SL_OK;
}

/* A job on the golden data: `options` as make_job has them, on top of the golden run's. */
static sl_job *golden_job(golden *g, const char *options)
{
    const sl_data data = {.struct_size = sizeof data,
                          .read = read_sequence,
                          .user = g,
                          .identity = "golden",
                          .sequences = STEPS * SEQUENCES,
                          .in_order = 1};
    static const char *const keys[] = {
        "seqlen", "16", "tokens-per-step", "32",  "steps",     "50",  "lr",    "1e-2",     "schedule", "constant",
        "warmup", "0",  "weight-decay",    "0.1", "precision", "f32", "costs", "roofline", "threads",  "2"};
    char copy[2400], *rest = copy;
    sl_job *job;
    CHECK_OK(sl_job_create(&job));
    for (int i = 0; i < SL_COUNT(keys); i += 2)
        CHECK_OK(sl_job_set(job, keys[i], keys[i + 1]));
    CHECK_OK(sl_job_set(job, "device", getenv("SLUICE_TEST_DEVICE") ? getenv("SLUICE_TEST_DEVICE") : "cpu"));
    snprintf(copy, sizeof copy, "%s", options);
    for (char *key; (key = next_word(&rest)) != NULL;)
        CHECK_OK(sl_job_set(job, key, next_word(&rest)));
    CHECK_OK(sl_job_set_data(job, &data));
    return job;
}

/* Every tensor of the adapter that the checkpoint holds, and no other. */
static double compare_final(const golden *g, const char *checkpoint)
{
    char path[1200];
    double worst = 0;
    int64_t expected = 0;
    sl_tensors *written;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", checkpoint);
    CHECK_OK(sl_tensors_open(path, &written));
    for (int64_t i = 0; i < sl_tensors_count(g->file); i++) {
        const sl_tensor *want = sl_tensors_at(g->file, i);
        if (strncmp(want->name, "final.", 6) != 0)
            continue;
        const sl_tensor *got = sl_tensors_find(written, want->name + 6);
        expected++;
        CHECK_MSG(got && got->dim[0] == want->dim[0] && got->dim[1] == want->dim[1], "%s is missing or another shape",
                  want->name);
        static float a[4096], b[4096];
        REQUIRE(got && got->count == want->count && want->count <= SL_COUNT(a));
        CHECK_OK(sl_tensors_read(g->file, want, 0, want->count, SL_F32, a));
        CHECK_OK(sl_tensors_read(written, got, 0, want->count, SL_F32, b));
        for (int64_t e = 0; e < want->count; e++)
            worst = SL_MAX(worst, fabs((double) a[e] - b[e]));
    }
    CHECK_I64(sl_tensors_count(written), expected);
    sl_tensors_close(written);
    return worst;
}

/* The run, given up and resumed after `restart` steps if that is above 0; `hash`: of all weights at the end. */
static void follow(const char *folder, const char *model, const char *options, int restart, char hash[32])
{
    static golden g;
    static int runs;
    char all[2400], out[600];
    double off[3] = {0};
    sl_trainer *t = NULL;
    sl_trainer_view view;
    outcome report;
    read_golden(folder, &g);
    snprintf(out, sizeof out, "%s-%d", test_path("lora"), runs++);
    snprintf(all, sizeof all, "model '%s' init-adapter '%s' out '%s' resume true %s", model,
             golden_path(folder, "adapter"), out, options);
    for (int step = 0; step < STEPS; step++) {
        sl_step_result got = SL_SIZED(sl_step_result);
        if (step == 0 || step == restart) {
            sl_trainer_destroy(t);
            sl_job *job = golden_job(&g, all);
            CHECK_OK(sl_trainer_create(job, &t));
            sl_job_destroy(job);
        }
        CHECK_OK(sl_trainer_step(t, &got));
        CHECK_I64(got.step, step + 1);
        off[0] = SL_MAX(off[0], fabs(got.loss - (double) g.loss[step]));
        off[1] = SL_MAX(off[1], fabs(got.grad_norm / (double) g.norm[step] - 1));
        if (step + 1 == restart)
            CHECK_OK(sl_trainer_checkpoint(t));
    }
    read_report(t, &report);
    snprintf(hash, 32, "%s", report.hash);
    CHECK_OK(sl_trainer_checkpoint(t));
    sl_trainer_look(t, &view);
    off[2] = compare_final(&g, view.checkpoint);
    sl_trainer_destroy(t);
    sl_tensors_close(g.file);
    printf("     %s, %s: losses within %.3g, norms within %.3g, adapters within %.3g\n", folder, options, off[0],
           off[1], off[2]);
    CHECK_MSG(off[0] <= 5e-6, "%s: the loss is off by %.3g", folder, off[0]);
    CHECK_MSG(off[1] <= 5e-5, "%s: the gradient norm is off by %.3g relative", folder, off[1]);
    CHECK_MSG(off[2] <= 5e-5, "%s: the adapter is off by %.3g", folder, off[2]);
}

/* A folder with the model's config.json and one more key, to be trained with the weights of the first. */
static void interleaved_model(const char *folder, char out[600])
{
    char path[700], *text;
    size_t length;
    sl_text config = {0};
    snprintf(out, 600, "%s", test_path("interleaved"));
    snprintf(path, sizeof path, "%s/config.json", out);
    CHECK_OK(sl_file_read_all(golden_path(folder, "config.json"), 1 << 16, &text, &length));
    sl_text_printf(&config, "{\"sluice_rope_order\": \"interleaved\",%s", text + 1);
    CHECK_OK(sl_dir_create(out));
    CHECK_OK(sl_file_write_atomic(path, config.data, config.length));
    sl_text_free(&config);
    sl_free(text);
}

/* Chunks that fix the bits, then budgets, rounds and resumes that may not. */
TEST(as_peft)
{
    static const char *const folders[] = {"lora-llama", "lora-qwen3", "lora-gpt2"};
    char one[32], again[32], model[600], options[1200];
    for (int i = 0; i < SL_COUNT(folders); i++) {
        snprintf(model, sizeof model, "%s", golden_path(folders[i], ""));
        follow(folders[i], model, "chunk-tokens 32", 0, one);
        follow(folders[i], model, "chunk-tokens 16", 0, one);
        follow(folders[i], model, "chunk-tokens 16 device-mem 70% threads 1", 17, again);
        CHECK_STR(one, again);
        follow(folders[i], model, "chunk-tokens 8 device-mem 85%", 33, one);
        follow(folders[i], model, "chunk-tokens 8", 0, again);
        CHECK_STR(one, again);
    }
    interleaved_model("lora-llama", model); /* rows of q and k, and of their B, in another order than in files */
    snprintf(options, sizeof options, "chunk-tokens 32 init-from '%s'", golden_path("lora-llama", ""));
    follow("lora-llama", model, options, 20, one);
}

/* The folder that a run writes is one to begin with: its loss is PEFT's with the same adapter. */
TEST(a_checkpoint_is_an_adapter)
{
    static golden g;
    char options[2400], out[600], folder[700], path[900], model[600];
    sl_step_result got = SL_SIZED(sl_step_result);
    sl_trainer *t;
    snprintf(out, sizeof out, "%s", test_path("first"));
    snprintf(model, sizeof model, "%s", golden_path("lora-llama", ""));
    snprintf(folder, sizeof folder, "%s/checkpoints/step-%08d", out, STEPS);
    read_golden("lora-llama", &g);
    snprintf(options, sizeof options, "model '%s' init-adapter '%s' out '%s'", model,
             golden_path("lora-llama", "adapter"), out);
    sl_job *job = golden_job(&g, options);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    while (!got.done)
        CHECK_OK(sl_trainer_step(t, &got));
    CHECK_CONTAINS(t->weights.text, "adapters: ");
    sl_trainer_destroy(t);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK(!sl_file_exists(path));
    sl_lora lora;
    snprintf(path, sizeof path, "%s/" SL_LORA_CONFIG, folder);
    CHECK_OK(sl_lora_read_config(path, &lora));
    CHECK(lora.rank == 4 && lora.alpha == 6 && !lora.rank_stabilized && lora.dropout == 0);
    CHECK_STR(lora.targets,
              "mlp.down_proj,mlp.gate_proj,mlp.up_proj,self_attn.k_proj,self_attn.o_proj,self_attn.q_proj,"
              "self_attn.v_proj");

    snprintf(options, sizeof options, "model '%s' init-adapter '%s'", model, folder);
    memmove(g.data, g.data + (STEPS - 1) * SEQUENCES * ROW, SEQUENCES * ROW * sizeof *g.data);
    job = golden_job(&g, options);
    CHECK_OK(sl_trainer_create(job, &t));
    CHECK_OK(sl_trainer_step(t, &got));
    CHECK_NEAR(got.loss, (double) g.last[0], 5e-6);
    sl_trainer_destroy(t);
    CHECK_OK(sl_job_set(job, "lora-rank", "8"));
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "--lora-rank is another than in the adapter_config.json");
    sl_job_destroy(job);
    sl_tensors_close(g.file);
}

/* A run goes on beside the model that it began with alone. */
TEST(another_model_below)
{
    static golden g;
    char options[2400], out[600], model[600];
    sl_trainer *t;
    sl_step_result got = SL_SIZED(sl_step_result);
    snprintf(out, sizeof out, "%s", test_path("below"));
    snprintf(model, sizeof model, "%s", golden_path("lora-llama", ""));
    read_golden("lora-llama", &g);
    snprintf(options, sizeof options, "model '%s' lora-rank 4 out '%s' steps 1", model, out);
    sl_job *job = golden_job(&g, options);
    CHECK_OK(sl_trainer_create(job, &t));
    CHECK_OK(sl_trainer_step(t, &got));
    CHECK_NEAR(got.loss, (double) g.loss[0], 5e-6); /* new adapters change nothing */
    sl_trainer_destroy(t);
    CHECK_OK(sl_job_set(job, "resume", "true"));
    CHECK_OK(sl_trainer_create(job, &t));
    sl_trainer_destroy(t);
    CHECK_OK(sl_job_set(job, "from-scratch", "true"));
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "model below the adapters");
    sl_job_destroy(job);
    job = golden_job(&g, "model byte-test lora-rank 4");
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "name its weights");
    sl_job_destroy(job);
    sl_tensors_close(g.file);
}

/* A is uniform between -1 and 1 over the root of its columns and another one in every layer, B is zero; both can be read and are trained. */
TEST(new_adapters)
{
    static float values[1 << 14], other[1 << 14];
    sl_job *job = make_job("model byte-nano lora-rank 16 from-scratch true");
    sl_trainer *t;
    int64_t adapters = 0;
    CHECK_OK(sl_trainer_create(job, &t));
    for (int64_t i = 0; i < sl_trainer_parameter_count(t); i++) {
        sl_parameter_info info = SL_SIZED(sl_parameter_info);
        double sum = 0, squares = 0, largest = 0;
        CHECK_OK(sl_trainer_parameter(t, i, &info));
        CHECK(info.trainable == (strncmp(info.name, "base_model.model.model.layers.", 30) == 0));
        if (!info.trainable)
            continue;
        adapters++;
        REQUIRE(info.count <= SL_COUNT(values));
        CHECK_OK(
            sl_trainer_read_parameter(t, info.name, SL_PARAMETER_F32, values, (size_t) info.count * sizeof *values));
        for (int64_t e = 0; e < info.count; e++) {
            sum += (double) values[e];
            squares += (double) values[e] * (double) values[e];
            largest = fmax(largest, fabs((double) values[e]));
        }
        if (strstr(info.name, "lora_B")) {
            CHECK(largest == 0);
            continue;
        }
        const double bound = 1 / sqrt((double) info.columns), n = (double) info.count;
        CHECK_I64(info.rows, 16);
        CHECK(largest <= bound * 1.000001 && largest > 0.98 * bound);
        CHECK_NEAR(sum / n / bound, 0, 3 / sqrt(n));
        CHECK_NEAR(squares / n / (bound * bound), 1.0 / 3, 2 / sqrt(n));
        CHECK(memcmp(values, other, 64 * sizeof *values) != 0);
        memcpy(other, values, sizeof other);
    }
    CHECK_I64(adapters, 4 * 7 * 2);
    sl_trainer_destroy(t);
    sl_job_destroy(job);
}

static size_t bytes_of_class(const sl_program *p, sl_object_class class)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < p->n_objects; i++)
        bytes += p->objects[i].class == class ? p->objects[i].bytes : 0;
    return bytes;
}

/* Gradients and optimizer state are the adapters' alone, and nothing of the model goes back to the host. */
TEST(the_model_is_only_read)
{
    sl_job *job = make_job("model byte-nano lora-rank 8 device-mem 50% precision f32");
    sl_prepared prepared = {0};
    sl_setup setup;
    size_t trained = 0, in = 0;
    int64_t back = 0;
    CHECK_OK(sl_setup_resolve(job, &setup));
    CHECK_OK(sl_prepare(&setup, &prepared));
    const sl_program *p = prepared.program;
    for (int32_t i = 0; i < p->n_params; i++) {
        CHECK(p->params[i].frozen == !p->params[i].adapter);
        trained += p->params[i].adapter ? SL_ROUND_UP(sl_type_bytes(&p->params[i].type), (size_t) 256) : 0;
    }
    CHECK(trained > 0 && bytes_of_class(p, SL_CLASS_OPTIMIZER) == 2 * trained);
    for (int32_t i = 0; i < prepared.plan->n_actions; i++) {
        const sl_action *action = &prepared.plan->actions[i];
        if (action->kind != SL_ACTION_COPY || p->objects[action->object].class != SL_CLASS_PARAMETER ||
            !p->groups[p->objects[action->object].group].frozen)
            continue;
        const bool out = prepared.plan->allocations[action->to].tier == SL_TIER_HOST;
        back += out;
        in += out ? 0 : p->objects[action->object].bytes;
    }
    CHECK_I64(back, 0);
    CHECK(in > 0);
    sl_prepared_destroy(&prepared);
    sl_job_destroy(job);
}

/* Little has to be in host memory, so that the search for the least of it comes to plans that recompute everything from everything: they
 * must not take all memory to be found useless. */
TEST(planning_takes_little_memory)
{
    sl_prediction_view view;
    sl_heap_peak_reset();
    prediction_job(
        "model llama3-8b lora-rank 16 seqlen 2048 tokens-per-step 65536 chunk-tokens 8192 precision bf16 device cuda "
        "hw h200 device-mem 6GiB data-format bytes",
        &view);
    CHECK(view.feasible && view.trained == 41943040);
    CHECK_MSG(sl_heap_peak_bytes() < (size_t) 400 << 20, "planning took %zu MiB", sl_heap_peak_bytes() >> 20);
}

TEST(options_that_cannot_be_meant)
{
    static const struct {
        const char *options, *message;
    } cases[] = {
        {"lora-alpha 3", "--lora-alpha has no effect without adapters"},
        {"lora-targets q_proj", "--lora-targets has no effect"},
        {"lora-rank -1", "out of range"},
        {"lora-rank 5000", "from 0 to 4096"},
        {"lora-rank 4 lora-alpha 0", "--lora-alpha 0"},
        {"lora-rank 4 lora-dropout 1", "--lora-dropout 1"},
        {"lora-rank 4 lora-targets q_proj,w_proj", "called \"w_proj\""},
        {"init-adapter '/nowhere'", "/nowhere/adapter_config.json"},
    };
    for (int i = 0; i < SL_COUNT(cases); i++) {
        sl_prediction *prediction;
        sl_job *job = make_job(cases[i].options);
        CHECK(sl_prediction_create(job, &prediction) != SL_OK);
        CHECK_CONTAINS(sl_error_message(), cases[i].message);
        sl_job_destroy(job);
    }
}

/* Masks of dropout belong to a step and a layer: with them training differs, and is as repeatable. */
TEST(dropout)
{
    outcome none, some, again;
    run_job("lora-rank 4 from-scratch true", 100, &none);
    run_job("lora-rank 4 from-scratch true lora-dropout 0.5", 100, &some);
    run_job("lora-rank 4 from-scratch true lora-dropout 0.5 device-mem 50% threads 1", 100, &again);
    CHECK(same_run(&some, &again));
    CHECK(none.loss[0] == some.loss[0]); /* B is zero */
    CHECK(none.loss[4] != some.loss[4]);
}

/* In bf16, with and without master weights: budgets and resumes. */
TEST(budgets_and_resumes_keep_the_bits)
{
    static const char *const precisions[] = {"bf16-master", "bf16"};
    for (int i = 0; i < SL_COUNT(precisions); i++) {
        outcome whole, part;
        char options[600], out[500];
        snprintf(out, sizeof out, "%s%d", test_path("bits"), i);
        snprintf(options, sizeof options, "lora-rank 4 from-scratch true clip 0.5 precision %s", precisions[i]);
        run_job(options, 100, &whole);
        CHECK(whole.loss[4] < whole.loss[0]);
        snprintf(options, sizeof options, "lora-rank 4 from-scratch true clip 0.5 precision %s device-mem 50%%",
                 precisions[i]);
        run_job(options, 100, &part);
        CHECK(same_run(&whole, &part));
        snprintf(options, sizeof options,
                 "lora-rank 4 from-scratch true clip 0.5 precision %s checkpoint-every 1 resume true out '%s'",
                 precisions[i], out);
        run_job(options, 2, &part);
        run_job(options, 100, &part);
        CHECK_STR(part.hash, whole.hash);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(as_peft);
    RUN(a_checkpoint_is_an_adapter);
    RUN(another_model_below);
    RUN(new_adapters);
    RUN(the_model_is_only_read);
    RUN(planning_takes_little_memory);
    RUN(options_that_cannot_be_meant);
    RUN(dropout);
    RUN(budgets_and_resumes_keep_the_bits);
    return test_end();
}
