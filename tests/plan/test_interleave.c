/* Interleaved rounds: every task once, every bit as before, and plans of any budget proved. */
#include "program/interleave.h"

#include "../model/interpret.h"
#include "plan/plan.h"

typedef struct job {
    const char *what;
    int64_t seqlen, sequences, chunk_tokens, chunks_per_round;
    sl_precision precision;
    bool gated;
} job;

static const job jobs[] = {
    {"packed", 8, 12, 16, 2, SL_PRECISION_F32, false},
    {"one chunk a round", 8, 6, 8, 1, SL_PRECISION_BF16, false},
    {"a short last round", 8, 7, 8, 2, SL_PRECISION_F32, true},
    {"sliced", 32, 3, 8, 4, SL_PRECISION_F32, true},
    {"two sequences a round", 16, 4, 8, 4, SL_PRECISION_BF16, false},
};

static interpreter make(const job *j, sl_model *model)
{
    sl_program_config config = interpret_config(j->seqlen, j->sequences, j->chunk_tokens, j->precision);
    config.chunks_per_round = j->chunks_per_round;
    config.gated = j->gated;
    interpreter it = interpret_create(model, &config);
    for (int32_t o = 0; o < it.program->n_objects; o++) {
        const sl_object *object = &it.program->objects[o];
        sl_dtype dtype = j->precision == SL_PRECISION_F32 ? SL_F32 : SL_BF16;
        int64_t count = (int64_t) (object->bytes / sl_dtype_bytes(dtype));
        for (int64_t i = 0; i < count && object->class == SL_CLASS_PARAMETER;
             i++) /* between -.05 and .05, without a pattern */
            interpret_put(it.memory[o], dtype, i, (float) ((i * 7919 + o * 104729) % 2003) / 20030.0f - 0.05f);
    }
    int32_t tokens[256], targets[256];
    for (int32_t i = 0; i < 256; i++) {
        tokens[i] = i * 37 % 251;
        targets[i] = i * 53 % 241;
    }
    interpret_set_data(&it, tokens, targets);
    return it;
}

static bool same_task(const sl_task *a, const sl_task *b)
{
    return a->op == b->op && a->phase == b->phase && a->block == b->block && a->chunk == b->chunk &&
           a->round == b->round && a->signature == b->signature && strcmp(a->name, b->name) == 0 &&
           memcmp(a->in, b->in, sizeof a->in) == 0 && memcmp(a->out, b->out, sizeof a->out) == 0;
}

/* The same tasks; the forwards of a round come before its backwards, those between the backwards of the round before. */
static void check_order(const sl_program *before, const sl_program *after)
{
    CHECK_I64(after->n_tasks, before->n_tasks);
    int32_t between = 0, backward_round = 0;
    for (int32_t t = 0; t < before->n_tasks; t++) {
        int32_t found = 0;
        for (int32_t k = 0; k < after->n_tasks; k++)
            found += same_task(&before->tasks[t], &after->tasks[k]);
        CHECK_I64(found, 1);
        const sl_task *task = &after->tasks[t];
        if (task->phase == SL_PHASE_BACKWARD) {
            CHECK(task->round >= backward_round);
            backward_round = SL_MAX(backward_round, task->round);
        } else if (task->phase == SL_PHASE_FORWARD)
            between += task->round > backward_round;
    }
    CHECK_MSG(between > 0, "no forward lies between backwards");
    for (int32_t o = 0; o < after->n_objects; o++) {
        int32_t a = before->objects[o].producer, b = after->objects[o].producer;
        CHECK((a < 0) == (b < 0) && (a < 0 || same_task(&before->tasks[a], &after->tasks[b])));
    }
    for (int32_t k = 0; k < after->n_signatures; k++)
        CHECK_I64(after->tasks[after->signatures[k].example].signature, k);
}

TEST(every_bit_stays)
{
    for (int64_t i = 0; i < SL_COUNT(jobs); i++) {
        sl_model model;
        CHECK_OK(sl_model_find("byte-test", &model));
        interpreter one = make(&jobs[i], &model), other = make(&jobs[i], &model);
        bool changed;
        CHECK_OK(sl_interleave(other.program, &changed));
        CHECK(changed);
        check_order(one.program, other.program);
        interpret_step(&one, true);
        interpret_step(&other, true);
        for (int32_t o = 0; o < one.program->n_objects; o++) {
            const sl_object *object = &one.program->objects[o];
            if (object->persistent || object->class == SL_CLASS_RESULT || object->class == SL_CLASS_GRADIENT)
                CHECK_MSG(memcmp(one.memory[o], other.memory[o], object->bytes) == 0, "%s: %s", jobs[i].what,
                          object->name);
        }
        CHECK(interpret_loss(&one) > 0);
        interpret_destroy(&one);
        interpret_destroy(&other);
    }
}

TEST(one_round_stays_as_it_is)
{
    sl_model model;
    CHECK_OK(sl_model_find("byte-test", &model));
    interpreter it = make(&(job){"one round", 8, 4, 8, 4, SL_PRECISION_F32, false}, &model);
    bool changed;
    CHECK_OK(sl_interleave(it.program, &changed));
    CHECK(!changed);
    interpret_destroy(&it);
}

/* From the least to plenty, searched as a part of a larger step is: with foresight. */
TEST(plans_are_right)
{
    for (int64_t i = 0; i < SL_COUNT(jobs); i++) {
        sl_model model;
        sl_hardware hw;
        sl_costs *costs;
        size_t least;
        CHECK_OK(sl_model_find("byte-test", &model));
        CHECK_OK(sl_hardware_find("h200", &hw));
        hw.link_latency_s = hw.launch_latency_s = 1e-9;
        interpreter it = make(&jobs[i], &model);
        bool changed;
        CHECK_OK(sl_interleave(it.program, &changed));
        CHECK_OK(sl_costs_roofline(it.program, &hw, NULL, &costs));
        memset(costs->workspace[SL_TIER_DEVICE], 0, (size_t) costs->n_signatures * sizeof(size_t));
        for (int host = 0; host < 2; host++) {
            sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .stands_for = 8};
            if (host)
                CHECK_OK(sl_plan_minimum(it.program, costs, &config, SL_TIER_HOST, &config.budget[SL_TIER_HOST]));
            CHECK_OK(sl_plan_minimum(it.program, costs, &config, SL_TIER_DEVICE, &least));
            for (int k = 0; k < 8; k++) {
                sl_plan *plan;
                config.budget[SL_TIER_DEVICE] = least + (size_t) k * (least / 4 / SL_ALIGN) * SL_ALIGN;
                CHECK_OK(sl_plan_create(it.program, costs, &config, &plan));
                CHECK_OK(sl_plan_check(it.program, plan, config.budget));
                sl_plan_destroy(plan);
            }
        }
        sl_costs_destroy(costs);
        interpret_destroy(&it);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(every_bit_stays);
    RUN(one_round_stays_as_it_is);
    RUN(plans_are_right);
    return test_end();
}
