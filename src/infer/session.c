/*
 * Decoding is planned first: it reads all weights for one token, so what it finds in device memory decides its speed. The prefill's plan
 * then keeps those placements. Its activations are a chunk's and not a token's, so under a tight budget decoding leaves some
 * memory to it: as little as suffices, found by doubling. Where that finds nothing, the prefill is planned first.
 */
#include "infer/session.h"

#include <inttypes.h>

#include "core/log.h"
#include "core/memory_limit.h"
#include "train/prepare.h"
#include "train/reader.h"

enum { CHUNK_CPU = 64, CHUNK_ACCELERATOR = 256, FIRST_SPARE_SHARE = 64 };

struct sl_session {
    sl_options *options;
    sl_job job;
    sl_setup setup;
    sl_prepared prepared;
    sl_device *device;
    sl_reader decode, prefill;
    bool prefill_first; /* planned first, under the tightest budgets */
    sl_store store;
    sl_weights weights;
    int64_t words, chunk, capacity, read;
    int32_t *staging; /* a chunk's tokens, then its positions */
    float *logits;
};

/* ---- planning ---- */

static sl_status resolve(sl_session *s, const sl_job *job, int64_t tokens)
{
    sl_setup *setup = &s->setup;
    SL_TRY(sl_options_copy(job->options, &s->options));
    s->job = (sl_job){s->options, job->hooks};
    s->job.hooks.forward_only = true;
    SL_TRY(sl_job_set(&s->job, "seqlen", "1"));
    SL_TRY(sl_job_set(&s->job, "tokens-per-step", "1"));
    SL_TRY(sl_setup_resolve(&s->job, setup));
    const sl_device_def *device = sl_device_def_find(setup->device);
    if (!device->computes)
        return sl_fail(SL_E_USAGE, "--device %s computes nothing, it is there to plan for", setup->device);
    if (setup->model.max_seqlen && tokens > setup->model.max_seqlen)
        return sl_fail(SL_E_USAGE,
                       "a text of %" PRId64 " tokens is more than the %" PRId64 " positions model %s has "
                       "learned",
                       tokens, setup->model.max_seqlen, setup->model.name);
    s->words = setup->model.vocab;
    s->chunk = device->shared_cores ? CHUNK_CPU : CHUNK_ACCELERATOR;
    s->capacity = SL_ROUND_UP(SL_MAX(tokens, 1), s->chunk);
    setup->program.chunking = (sl_chunking){1, 1, 1};
    setup->program.max_segments = 1;
    setup->program.cache_rows = s->capacity;
    setup->beside = (sl_chunking){s->chunk, 1, s->chunk};
    setup->val_every = 1; /* a second program */
    setup->steps = 1;
    setup->smaller = "a shorter text: a shorter --prompt, or fewer --max-tokens";
    setup->runs = true;
    return SL_OK;
}

/* With `spare` of the device's budget for the second program alone. */
static sl_status plan_with(sl_session *s, size_t spare)
{
    sl_setup setup = s->setup;
    if (spare > 0) {
        setup.budget[SL_TIER_DEVICE] -= spare;
        setup.beside_bytes = spare;
    }
    sl_prepared_destroy(&s->prepared);
    return sl_prepare(&setup, &s->prepared);
}

static sl_status plan(sl_session *s)
{
    sl_status status = plan_with(s, 0);
    if (status != SL_E_DOES_NOT_FIT || !s->prepared.plan)
        return status;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) { /* percentages are bytes now */
        s->setup.budget[tier] = s->prepared.budget[tier];
        s->setup.share[tier] = 0;
    }
    const size_t given = s->setup.budget[SL_TIER_DEVICE];
    for (size_t spare = SL_ROUND_UP(given / FIRST_SPARE_SHARE, (size_t) SL_ALIGN);
         given != SIZE_MAX && spare < given && s->prepared.plan; spare *= 2) {
        status = plan_with(s, spare);
        if (status != SL_E_DOES_NOT_FIT)
            return status;
    }
    s->prefill_first = true; /* the least that both can do with is what it needs */
    s->setup.beside = s->setup.program.chunking;
    s->setup.program.chunking = (sl_chunking){s->chunk, 1, s->chunk};
    return plan_with(s, 0);
}

/* ---- device ---- */

static sl_status open_device(sl_session *s)
{
    const sl_prepared *p = &s->prepared;
    sl_device_config config = {.threads = s->setup.threads, .seed = s->setup.seed, .ahead = p->ahead};
    const sl_plan *plans[] = {p->plan, p->val_plan};
    for (int i = 0; i < 2; i++) {
        size_t extent[SL_TIER_COUNT];
        int64_t commands, events;
        sl_plan_extent(plans[i], extent);
        sl_engine_needs(plans[i], &commands, &events);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            config.arena_bytes[tier] = SL_MAX(config.arena_bytes[tier], extent[tier]);
        config.max_commands = SL_MAX(config.max_commands, commands);
        config.max_events = SL_MAX(config.max_events, events);
    }
    sl_reader first = {.program = p->program, .plan = p->plan, .words = s->words, .capacity = s->capacity},
              second = first;
    second.program = p->val_program;
    second.plan = p->val_plan;
    s->decode = s->prefill_first ? second : first;
    s->prefill = s->prefill_first ? first : second;
    s->decode.rows = 1;
    s->prefill.rows = s->chunk;
    SL_TRY(sl_device_open(s->setup.device, &config, &s->device));
    SL_TRY(sl_engine_create(s->device, s->decode.program, s->decode.plan, &s->decode.engine));
    return sl_engine_create(s->device, s->prefill.program, s->prefill.plan, &s->prefill.engine);
}

static sl_status load(sl_session *s)
{
    sl_hooks_progress(&s->job.hooks, SL_STAGE_WEIGHTS, 0);
    SL_TRY(sl_store_open(&s->store, s->decode.program, sl_store_engine(s->decode.engine)));
    SL_TRY(sl_weights_begin(&s->setup, &s->store, &s->weights));
    sl_hooks_progress(&s->job.hooks, SL_STAGE_WEIGHTS, 1);
    return SL_OK;
}

sl_status sl_session_create(const sl_job *job, int64_t tokens, sl_session **out)
{
    sl_session *s;
    sl_status status;
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    SL_TRY_GOTO(resolve(s, job, tokens), fail);
    SL_TRY_GOTO(plan(s), fail);
    SL_TRY_GOTO(open_device(s), fail);
    SL_TRY_GOTO(sl_alloc(&s->staging, 2 * s->chunk, sizeof *s->staging), fail);
    SL_TRY_GOTO(sl_alloc(&s->logits, s->words, sizeof *s->logits), fail);
    SL_TRY_GOTO(load(s), fail);
    *out = s;
    return SL_OK;
fail:
    sl_session_destroy(s);
    return status;
}

void sl_session_destroy(sl_session *s)
{
    if (!s)
        return;
    sl_store_close(&s->store);
    sl_engine_destroy(s->prefill.engine);
    sl_engine_destroy(s->decode.engine);
    sl_device_close(s->device);
    sl_prepared_destroy(&s->prepared);
    sl_options_destroy(s->options);
    sl_free(s->staging);
    sl_free(s->logits);
    sl_free(s);
}

/* ---- reading ---- */

sl_status sl_session_read(sl_session *s, const int32_t *tokens, int64_t count)
{
    SL_TRY(sl_reader_check(&s->decode, s->setup.model.name, tokens, count, s->read));
    while (count > 0) {
        const int64_t n = SL_MIN(count, s->chunk);
        SL_TRY(sl_reader_step(n == 1 ? &s->decode : &s->prefill, tokens, n, s->read, s->staging, s->logits));
        s->read += n;
        tokens += n;
        count -= n;
    }
    return SL_OK;
}

void sl_session_rewind(sl_session *s, int64_t keep)
{
    s->read = SL_MIN(s->read, keep);
}

const float *sl_session_logits(const sl_session *s)
{
    return s->logits;
}

static sl_status model_read(void *session, const int32_t *tokens, int64_t count)
{
    return sl_session_read(session, tokens, count);
}

static const float *model_logits(void *session)
{
    return sl_session_logits(session);
}

sl_token_model sl_session_model(sl_session *s)
{
    return (sl_token_model){s, model_read, model_logits, s->chunk};
}

void sl_session_look(const sl_session *s, sl_session_view *v)
{
    const sl_prepared *p = &s->prepared;
    *v = (sl_session_view){
        .setup = &s->setup,
        .weights = s->weights.text,
        .words = s->words,
        .read = s->read,
        .capacity = s->capacity,
        .chunk = s->chunk,
        .predicted_decode_s = s->decode.plan->predicted.step_s,
        .predicted_prefill_s = s->prefill.plan->predicted.step_s,
        .streamed_bytes = (size_t) s->decode.plan->predicted.link_bytes[SL_LINK_IN],
    };
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        v->budget_bytes[tier] = s->setup.limited[tier] ? SL_MIN(s->setup.budget[tier], p->val_budget[tier]) : SIZE_MAX;
        v->unlimited_bytes[tier] = p->unlimited_bytes[tier];
        v->peak_bytes[tier] = SL_MAX(sl_engine_peak_bytes(s->decode.engine, (sl_tier) tier),
                                     sl_engine_peak_bytes(s->prefill.engine, (sl_tier) tier));
    }
    v->peak_bytes[SL_TIER_HOST] += sl_heap_peak_bytes();
    for (int32_t o = 0; o < p->program->n_objects; o++)
        if (p->program->objects[o].persistent && p->program->objects[o].class == SL_CLASS_CONTEXT)
            v->cache_bytes += p->program->objects[o].bytes;
}
