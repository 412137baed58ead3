/* Steps of the size of real models on an H200: planned in time, within budgets, proved, and nearly as fast as
 * without a budget. */
#include <time.h>

#include "test.h"
#include "transformer.h"

#define GIB ((size_t) 1 << 30)
#ifdef __SANITIZE_ADDRESS__
#define SLOW 20
#else
#define SLOW 1
#endif

static double processor_s(void)
{
    return (double) clock() / CLOCKS_PER_SEC;
}

/* Step time; 0: refused. */
static double plan_step(transformer m, size_t device, size_t host, double limit_s)
{
    synthetic *s = transformer_program(&m);
    sl_plan_config config = {.budget = {device, host}};
    sl_plan *plan;
    double start = processor_s(), step_s = 0;
    sl_status status = sl_plan_create(&s->program, s->costs, &config, &plan);
    double took = processor_s() - start;
    CHECK_MSG(status == SL_OK, "%s", sl_error_message());
    if (status == SL_OK) {
        CHECK_OK(sl_plan_check(&s->program, plan, config.budget));
        step_s = plan->predicted.step_s;
        printf("%d tasks, %zu/%zu GiB, %d chunks a round: %.2f s a step (bound %.2f), recompute %.1f %%, planned in "
               "%.2f s\n",
               s->program.n_tasks, device / GIB, host / GIB, (int) m.chunks_per_round, step_s, plan->lower_bound_s,
               100 * plan->predicted.recompute_fraction, took);
        sl_plan_destroy(plan);
    }
    CHECK_MSG(took < limit_s * SLOW, "%.2f s to plan", took);
    synthetic_free(s);
    return step_s;
}

static transformer with_rounds(transformer m, int64_t chunks_per_round)
{
    m.chunks_per_round = chunks_per_round;
    return m;
}

TEST(llama_8b)
{
    double free_s = plan_step(with_rounds(llama_8b, 1), 130 * GIB, 100 * GIB, 3);
    double tight_s = plan_step(with_rounds(llama_8b, 1), 24 * GIB, 100 * GIB, 3);
    CHECK_MSG(tight_s > 0 && free_s / tight_s >= 0.91, "%.1f %% of the speed at 130 GiB", 100 * free_s / tight_s);
    double least_s = plan_step(with_rounds(llama_8b, 1), 12 * GIB, 100 * GIB, 3);
    CHECK_MSG(least_s > 0 && free_s / least_s >= 0.84, "%.1f %% of the speed at 130 GiB", 100 * free_s / least_s);
}

/* What lives on the device wants little of the host; and what is left on the host wants no more than it says. */
TEST(little_host_memory)
{
    const transformer m = with_rounds(llama_8b, 1);
    CHECK(plan_step(m, 100 * GIB, 4 * GIB, 3) > 0);
    CHECK(plan_step(m, 60 * GIB, 30 * GIB, 3) > 0);
    synthetic *s = transformer_program(&m);
    sl_plan_config config = {.budget = {100 * GIB, 4 * GIB}};
    sl_plan *plan;
    size_t least;
    CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &plan));
    CHECK_OK(sl_plan_minimum(&s->program, s->costs, &config, SL_TIER_HOST, &least));
    size_t takes = plan->predicted.peak_bytes[SL_TIER_HOST];
    CHECK_MSG(least <= takes + takes / 100, "the least is said to be %zu bytes, and a plan takes %zu", least, takes);
    sl_plan_destroy(plan);
    config.budget[SL_TIER_HOST] = least;
    CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &plan));
    sl_plan_destroy(plan);
    config.budget[SL_TIER_HOST] = least - SL_ALIGN;
    CHECK_FAILS(sl_plan_create(&s->program, s->costs, &config, &plan), SL_E_DOES_NOT_FIT);
    synthetic_free(s);
}

TEST(llama_32b)
{
    CHECK(plan_step(with_rounds(llama_32b, 1), 40 * GIB, 360 * GIB, 5) > 0);
}

TEST(a_million_tokens)
{
    CHECK(plan_step(llama_1b_long, 32 * GIB, 192 * GIB, 8) > 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(llama_8b);
    RUN(little_host_memory);
    RUN(llama_32b);
    RUN(a_million_tokens);
    return test_end();
}
