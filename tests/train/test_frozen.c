/* Frozen parameters: the gradients of the others as ever, their own bytes as they were, and less to hold and to move. */
#include "core/hash.h"
#include "model/interpret.h"
#include "plan/plan.h"
#include "run_job.h"
#include "train/run.h"

static sl_model golden_model(const char *name)
{
    char path[512];
    sl_model model;
    snprintf(path, sizeof path, "%s/tests/golden/%s", SL_SOURCE_DIR, name);
    CHECK_OK(sl_model_find(path, &model));
    return model;
}

static interpreter after_a_step(sl_model *model, const char *frozen, int64_t chunk_tokens)
{
    sl_program_config config = interpret_config(16, 2, chunk_tokens, SL_PRECISION_F32);
    config.frozen = frozen;
    config.norm = true;
    interpreter it = interpret_create(model, &config);
    for (int32_t p = 0; p < it.program->n_params; p++) {
        const sl_param *param = &it.program->params[p]; /* the same values wherever the parameter stands */
        const uint64_t seed = sl_hash64(param->name, strlen(param->name), 0);
        for (int64_t i = 0; i < sl_type_count(&param->type); i++)
            interpret_put(interpret_param(&it, p), SL_F32, i,
                          (param->init == SL_INIT_ONES ? 1.0f : 0.0f) + 0.2f * interpret_noise(seed, i));
    }
    int32_t tokens[32], targets[32];
    for (int i = 0; i < 32; i++)
        tokens[i] = i * 7 % 53, targets[i] = i * 11 % 53;
    interpret_set_data(&it, tokens, targets);
    interpret_step(&it, true);
    return it;
}

static int32_t param_called(const sl_program *p, const char *name)
{
    for (int32_t i = 0; i < p->n_params; i++)
        if (strcmp(p->params[i].name, name) == 0)
            return i;
    return -1;
}

static size_t bytes_of_class(const sl_program *p, sl_object_class class)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < p->n_objects; i++)
        bytes += p->objects[i].class == class ? p->objects[i].bytes : 0;
    return bytes;
}

static void check_program(const char *name, const char *frozen, int32_t n_frozen, int64_t chunk_tokens)
{
    sl_model model = golden_model(name);
    interpreter all = after_a_step(&model, NULL, chunk_tokens), some = after_a_step(&model, frozen, chunk_tokens);
    const sl_program *p = some.program;
    CHECK(interpret_loss(&all) == interpret_loss(&some));
    for (int32_t i = 0; i < p->n_params; i++) {
        const sl_param *param = &p->params[i];
        const int32_t other = param_called(all.program, param->name);
        const size_t bytes = sl_type_bytes(&param->type);
        REQUIRE(other >= 0);
        n_frozen -= param->frozen;
        CHECK(param->frozen == p->groups[param->group_index].frozen);
        if (param->frozen) {
            CHECK(interpret_gradient_object(&some, param->group_index) < 0);
            CHECK(p->state_object[0][param->group_index] < 0 && p->master_object[param->group_index] < 0);
            continue;
        }
        CHECK_MSG(memcmp(interpret_gradient(&some, i), interpret_gradient(&all, other), bytes) == 0,
                  "%s, %s frozen: the gradient of %s has changed", name, frozen, param->name);
        CHECK(memcmp(interpret_param(&some, i), interpret_param(&all, other), bytes) == 0);
    }
    CHECK_I64(n_frozen, 0);
    CHECK(p->n_tasks < all.program->n_tasks);
    static const sl_object_class fewer[] = {SL_CLASS_GRADIENT, SL_CLASS_OPTIMIZER};
    for (int64_t i = 0; i < SL_COUNT(fewer); i++)
        CHECK(bytes_of_class(p, fewer[i]) < bytes_of_class(all.program, fewer[i]));
    CHECK(bytes_of_class(p, SL_CLASS_PARAMETER) >= bytes_of_class(all.program, SL_CLASS_PARAMETER));
    interpret_destroy(&all);
    interpret_destroy(&some);
}

TEST(other_gradients_are_unchanged)
{
    check_program("qwen3", "layers.*.qkv,layers.1.gate_up", 3, 32);
    check_program("qwen3", "*norm*", 9, 16);
    check_program("qwen3", "embedding,layers.0.*", 9, 16);   /* no backward at all in two blocks */
    check_program("llama-tied", "embedding", 1, 5);          /* a table that two blocks use */
    check_program("llama", "head,layers.?.[og]*", 5, 5);     /* all but a norm of the last block */
    check_program("gpt2", "layers.*.qkv*,positions", 5, 32); /* biases as well */
}

TEST(patterns_that_cannot_be_meant)
{
    sl_model model = golden_model("qwen3");
    sl_program *program;
    sl_program_config config = interpret_config(16, 2, 32, SL_PRECISION_F32);
    config.frozen = "layers.*.qkv,layers.7.*";
    CHECK_FAILS(sl_program_create(&config, sl_build_model, &model, &program), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "\"layers.7.*\"");
    CHECK_CONTAINS(sl_error_message(), "embedding ... head");
    config.frozen = "*";
    CHECK_FAILS(sl_program_create(&config, sl_build_model, &model, &program), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "all 19 parameters are frozen");
    config.forward_only = true;
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
    sl_program_destroy(program);
}

/* What a plan for the least device memory copies of parameters that are frozen, in and out. */
TEST(frozen_weights_are_never_written_back)
{
    sl_model model = golden_model("qwen3");
    sl_program_config config = interpret_config(16, 8, 16, SL_PRECISION_F32);
    sl_device *device;
    sl_device_config none = {.threads = 1, .max_commands = 1, .max_events = 1};
    sl_hardware hardware;
    sl_program *program;
    sl_costs *costs;
    sl_plan *plan;
    int64_t copies[2][2] = {{0}}; /* [frozen][to the host] */
    config.frozen = "layers.*";
    config.chunks_per_round = 2;
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
    CHECK_OK(sl_device_open("sim", &none, &device));
    device->class->hardware(device, &hardware);
    CHECK_OK(sl_costs_roofline(program, &hardware, device, &costs));
    sl_plan_config limits = {.budget = {SIZE_MAX, SIZE_MAX}};
    CHECK_OK(sl_plan_minimum(program, costs, &limits, SL_TIER_DEVICE, &limits.budget[SL_TIER_DEVICE]));
    CHECK_OK(sl_plan_create(program, costs, &limits, &plan));
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *action = &plan->actions[i];
        if (action->kind != SL_ACTION_COPY || program->objects[action->object].class != SL_CLASS_PARAMETER)
            continue;
        const bool frozen = program->groups[program->objects[action->object].group].frozen;
        copies[frozen][plan->allocations[action->to].tier == SL_TIER_HOST]++;
    }
    CHECK(copies[1][0] > 0 && copies[1][1] == 0);
    CHECK(copies[0][0] > 0);
    sl_plan_destroy(plan);
    sl_costs_destroy(costs);
    sl_device_close(device);
    sl_program_destroy(program);
}

/* The bytes of all weights of a kind. */
static uint64_t hash_of(sl_trainer *t, bool frozen)
{
    static unsigned char bytes[1 << 18];
    uint64_t hash = 0;
    for (int32_t p = 0; p < t->store.program->n_params; p++) {
        const sl_param *param = &t->store.program->params[p];
        sl_store_part part = {&t->store, p, SL_PART_WEIGHT};
        if (param->frozen != frozen)
            continue;
        REQUIRE(sl_type_bytes(&param->type) <= sizeof bytes);
        CHECK_OK(sl_store_read_part(&part, 0, bytes, sl_type_bytes(&param->type)));
        hash = sl_hash64(bytes, sl_type_bytes(&param->type), hash);
    }
    return hash;
}

#define FROZEN "freeze embedding,layers.*.qkv,layers.*.mlp_norm "

static void check_run(const char *options)
{
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &trainer));
    sl_job_destroy(job);
    const uint64_t frozen = hash_of(trainer, true), trained = hash_of(trainer, false);
    while (!result.done)
        CHECK_OK(sl_trainer_step(trainer, &result));
    CHECK(hash_of(trainer, true) == frozen);
    CHECK(hash_of(trainer, false) != trained);
    sl_trainer_destroy(trainer);
}

TEST(frozen_weights_stay)
{
    check_run(FROZEN "precision f32 weight-decay 0.5");
    check_run(FROZEN "precision bf16 clip 0.1 device-mem 40%");
    check_run(FROZEN "precision bf16-master optimizer sgd device-mem 50%");
}

TEST(budgets_and_resumes_keep_the_bits)
{
    static const char *const precisions[] = {"bf16-master", "bf16"};
    for (int64_t i = 0; i < SL_COUNT(precisions); i++) {
        outcome whole, part;
        char options[512];
        snprintf(options, sizeof options, FROZEN "clip 0.5 precision %s", precisions[i]);
        run_job(options, 100, &whole);
        snprintf(options, sizeof options, FROZEN "clip 0.5 precision %s device-mem 40%%", precisions[i]);
        run_job(options, 100, &part);
        CHECK(same_run(&whole, &part));
        snprintf(options, sizeof options, FROZEN "clip 0.5 precision %s out '%s%d' checkpoint-every 1", precisions[i],
                 test_path("frozen"), (int) i);
        run_job(options, 2, &part);
        snprintf(options, sizeof options, FROZEN "clip 0.5 precision %s out '%s%d' resume true threads 1",
                 precisions[i], test_path("frozen"), (int) i);
        run_job(options, 100, &part);
        CHECK_STR(part.hash, whole.hash);
        snprintf(options, sizeof options, "clip 0.5 precision %s out '%s%d' resume true", precisions[i],
                 test_path("frozen"), (int) i);
        sl_job *job = make_job(options);
        sl_trainer *trainer;
        CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), "frozen parameters");
        sl_job_destroy(job);
    }
}

TEST(a_plan_holds_fewer_bytes)
{
    sl_prediction_view all, some;
    prediction_job("precision f32", &all);
    prediction_job("precision f32 freeze layers.*", &some);
    CHECK(some.feasible && some.predicted.step_s < all.predicted.step_s);
    /* 12 bytes of gradient and moments per parameter, of which byte-test has 98,304 and some in its layers' matrices */
    CHECK(some.predicted.peak_bytes[SL_TIER_DEVICE] + 12 * 75000 < all.predicted.peak_bytes[SL_TIER_DEVICE]);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(other_gradients_are_unchanged);
    RUN(patterns_that_cannot_be_meant);
    RUN(frozen_weights_are_never_written_back);
    RUN(frozen_weights_stay);
    RUN(budgets_and_resumes_keep_the_bits);
    RUN(a_plan_holds_fewer_bytes);
    return test_end();
}
