#include "train/samples.h"

#include <inttypes.h>
#include <string.h>

#include "core/clock.h"

/* ---- before the run ---- */

static sl_status encode_prompt(const sl_setup *setup, sl_samples *s)
{
    const sl_model *m = &setup->model;
    const sl_words_config words = {setup->tokenizer, setup->model_folder, m->name, m->vocab};
    const int64_t context = m->max_seqlen; /* of learned positions: there are no others */
    SL_TRY(sl_words_open(&words, &s->words));
    if (!sl_words_know_text(s->words))
        return sl_fail(SL_E_USAGE,
                       "--sample-every needs a tokenizer for the %" PRId64 " tokens of model %s, which are not bytes: "
                       "give --tokenizer, or leave out --sample-every",
                       m->vocab, m->name);
    SL_TRY(sl_words_encode(s->words, setup->sample_prompt, &s->prompt));
    if (context && s->prompt.count >= context)
        return sl_fail(SL_E_USAGE,
                       "--sample-prompt has %" PRId64 " tokens, but model %s has learned %" PRId64
                       " positions: give a shorter one",
                       s->prompt.count, m->name, context);
    s->most = context ? SL_MIN(setup->sample_tokens, context - s->prompt.count) : setup->sample_tokens;
    const sl_reader reader = {.words = m->vocab, .capacity = s->prompt.count + s->most};
    return sl_reader_check(&reader, m->name, s->prompt.ids, s->prompt.count, 0);
}

/* What a run takes besides: logits and candidates of the vocabulary, and for every token itself and a few bytes of text. */
static size_t run_bytes(const sl_setup *setup, const sl_samples *s)
{
    enum { PER_WORD = 24, PER_TOKEN = 64, TEXTS = 64 << 10 };
    return (size_t) setup->model.vocab * PER_WORD + (size_t) s->most * PER_TOKEN + TEXTS;
}

sl_status sl_samples_open(const sl_setup *setup, sl_samples **out)
{
    sl_samples *s;
    const size_t before = sl_heap_bytes();
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    const sl_status status = encode_prompt(setup, s);
    if (status != SL_OK) {
        sl_samples_close(s);
        return status;
    }
    s->heap_bytes = sl_heap_bytes() - before + run_bytes(setup, s);
    *out = s;
    return SL_OK;
}

void sl_samples_close(sl_samples *s)
{
    if (!s)
        return;
    sl_words_close(s->words);
    sl_tokens_free(&s->prompt);
    sl_free(s);
}

/* ---- during the run ---- */

sl_status sl_run_samples_begin(const sl_setup *setup, sl_samples *of, sl_run_samples *run)
{
    /* The defaults of `sluice generate`; the same numbers for every sample, so that samples differ by what was learned between them. */
    const sl_sampling sampling = {.temperature = 0.8, .top_p = 0.95, .seed = setup->seed};
    run->of = of;
    run->model = setup->model.name;
    run->step = -1;
    SL_TRY(sl_alloc(&run->logits, setup->model.vocab, sizeof *run->logits));
    SL_TRY(sl_alloc(&run->made.ids, of->most, sizeof *run->made.ids));
    return sl_sampler_create(&sampling, setup->model.vocab, &run->sampler);
}

void sl_run_samples_end(sl_run_samples *run)
{
    sl_sampler_destroy(run->sampler);
    sl_tokens_free(&run->made);
    sl_text_stream_free(&run->stream);
    sl_free(run->logits);
    sl_engine_destroy(run->reader.engine);
    *run = (sl_run_samples){.step = -1};
}

static sl_status read_tokens(void *context, const int32_t *tokens, int64_t count)
{
    sl_run_samples *run = context;
    SL_TRY(sl_reader_check(&run->reader, run->model, tokens, count, run->read));
    for (int64_t i = 0; i < count; i++)
        SL_TRY(sl_reader_step(&run->reader, tokens + i, 1, run->read++, run->staging, run->logits));
    return SL_OK;
}

static const float *logits_of(void *context)
{
    return ((const sl_run_samples *) context)->logits;
}

/* The step before has written anything where K/V are now. Rows that no token has yet are never used, but a kernel may load them, and
 * what it multiplies by zero has to be finite. */
static sl_status clear_cache(const sl_run_samples *run)
{
    const sl_program *p = run->reader.program;
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].persistent && p->objects[o].class == SL_CLASS_CONTEXT)
            SL_TRY(sl_engine_write(run->reader.engine, o, 0, NULL, p->objects[o].bytes));
    return SL_OK;
}

sl_status sl_run_samples_make(sl_run_samples *run, int64_t step)
{
    const double start = sl_clock_s();
    sl_continuation text = {.model = {run, read_tokens, logits_of, 1},
                            .words = run->of->words,
                            .sampler = run->sampler,
                            .stream = &run->stream,
                            .most = run->of->most,
                            .made = &run->made};
    sl_text_stream_free(&run->stream);
    run->stream = (sl_text_stream){.n_stops = 0};
    run->made.count = run->read = 0;
    run->step = step;
    run->why = "not finite";
    SL_TRY(clear_cache(run));
    const sl_status status = sl_continue(&text, &run->of->prompt, 0);
    run->seconds = sl_clock_s() - start;
    if (status == SL_OK)
        run->why = text.why;
    return status;
}

const char *sl_run_samples_text(const sl_run_samples *run)
{
    return run->stream.text.data ? run->stream.text.data : "";
}
