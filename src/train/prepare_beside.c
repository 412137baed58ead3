/*
 * The programs that run beside the training step: validation (or the second program of a session), and samples. They share its persistent
 * objects. First they are planned within the memory that training has anyway, which nearly always does (no gradients,
 * nothing kept for a backward); else within more of it, up to the budgets.
 */
#include <string.h>

#include "core/log.h"
#include "core/text.h"
#include "train/job_costs.h"

static sl_status fit(const sl_program *program, const sl_costs *costs, sl_plan_config config,
                     const size_t budget[SL_TIER_COUNT], sl_plan **out)
{
    sl_plan_extent(config.placements, config.budget);
    for (;;) {
        sl_status status = sl_plan_create(program, costs, &config, out);
        bool grown = false;
        if (status != SL_E_DOES_NOT_FIT)
            return status;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
            size_t more = SL_MIN(config.budget[tier] + config.budget[tier] / 2 + (1 << 20), budget[tier]);
            grown = grown || more > config.budget[tier];
            config.budget[tier] = more;
        }
        if (!grown)
            return status;
    }
}

/* The planner's own message is about chunks. */
static sl_status refuse(const sl_prepared *p, const char *what, const char *smaller)
{
    char device[32], host[32];
    return sl_fail(SL_E_DOES_NOT_FIT, "%s not fit %s of device and %s of host memory: raise a budget, or use %s", what,
                   sl_format_bytes(p->budget[SL_TIER_DEVICE], device), sl_format_bytes(p->budget[SL_TIER_HOST], host),
                   smaller);
}

sl_status sl_prepare_validation(const sl_setup *setup, sl_prepared *p)
{
    sl_program_config config = p->program->config;
    sl_model model = setup->model;
    config.forward_only = true;
    config.gated = config.norm = false;
    if (setup->beside.seqlen)
        config.chunking = setup->beside;
    SL_TRY(sl_program_create(&config, sl_build_model, &model, &p->val_program));
    SL_TRY(sl_job_costs(&(sl_cost_source){setup, p}, p->val_program, &p->val_costs));
    memcpy(p->val_budget, p->plan_budget, sizeof p->val_budget);
    if (p->val_budget[SL_TIER_DEVICE] != SIZE_MAX)
        p->val_budget[SL_TIER_DEVICE] += setup->beside_bytes;
    sl_status status =
        fit(p->val_program, p->val_costs, (sl_plan_config){.placements = p->plan}, p->val_budget, &p->val_plan);
    if (status != SL_E_DOES_NOT_FIT)
        return status;
    if (setup->beside.seqlen)
        return refuse(p, "the programs that read and write a text do", setup->smaller);
    sl_warn("validation does not fit beside the training state and is left out: %s", sl_error_message());
    return SL_OK;
}

static sl_status build_samples(const sl_setup *setup, sl_prepared *p)
{
    sl_program_config config = p->program->config;
    sl_model model = setup->model;
    config.forward_only = true;
    config.gated = config.norm = config.token_weights = config.rematerialize = false;
    config.chunking = (sl_chunking){1, 1, 1};
    config.max_segments = 1;
    config.chunks_per_round = 0;
    config.cache_rows = p->samples->prompt.count + p->samples->most;
    return sl_program_create(&config, sl_build_model, &model, &p->sample_program);
}

/* K/V on the device if it has the space, else in host memory. */
sl_status sl_prepare_samples(const sl_setup *setup, sl_prepared *p)
{
    const sl_status built = build_samples(setup, p);
    if (built == SL_E_MEMORY)
        return built;
    if (built != SL_OK || p->sample_program->result_object < 0)
        return sl_fail(SL_E_USAGE, "model %s has no logits to generate text from: leave out --sample-every",
                       setup->model.name);
    SL_TRY(sl_job_costs(&(sl_cost_source){setup, p}, p->sample_program, &p->sample_costs));
    sl_status status = SL_E_DOES_NOT_FIT;
    for (int tier = 0; tier < SL_TIER_COUNT && status == SL_E_DOES_NOT_FIT; tier++)
        status = fit(p->sample_program, p->sample_costs,
                     (sl_plan_config){.placements = p->plan, .further_tier = (sl_tier) tier}, p->plan_budget,
                     &p->sample_plan);
    return status != SL_E_DOES_NOT_FIT ? status
                                       : refuse(p, "training would fit, but the samples of --sample-every beside it do",
                                                "fewer --sample-tokens, or leave out --sample-every");
}
