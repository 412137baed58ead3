#include "text/continuation.h"

#include "core/clock.h"
#include "core/mem.h"

static bool asked_to_stop(const sl_continuation *c)
{
    return c->stop && atomic_load_explicit(c->stop, memory_order_relaxed);
}

static sl_status read_prompt(sl_continuation *c, const sl_tokens *prompt, int64_t read)
{
    for (int64_t at = read; at < prompt->count && !asked_to_stop(c); at += c->model.chunk)
        SL_TRY(c->model.read(c->model.context, prompt->ids + at, SL_MIN(c->model.chunk, prompt->count - at)));
    return SL_OK;
}

/* The text that the newest token adds. */
static sl_status add_text(sl_continuation *c)
{
    sl_text piece = {0};
    sl_status status = sl_words_decode(c->words, c->made->ids[c->made->count - 1], &piece);
    if (status == SL_OK)
        status = sl_text_stream_put(c->stream, piece.data, piece.length, false);
    sl_text_free(&piece);
    return status;
}

/* One more token, and why it was the last one. */
static sl_status next(sl_continuation *c)
{
    int32_t token;
    SL_TRY(sl_sampler_next(c->sampler, c->model.logits(c->model.context), c->drawn++, &token));
    if (!c->ignore_end && sl_words_ends(c->words, token)) {
        c->why = "end";
        return SL_OK;
    }
    c->made->ids[c->made->count++] = token;
    SL_TRY(add_text(c));
    c->why = c->stream->stopped          ? "stop"
             : c->made->count == c->most ? "length"
             : asked_to_stop(c)          ? "interrupted"
                                         : NULL;
    return c->why ? SL_OK : c->model.read(c->model.context, &token, 1);
}

sl_status sl_continue(sl_continuation *c, const sl_tokens *prompt, int64_t read)
{
    const double start = sl_clock_s();
    SL_TRY(sl_words_begin(c->words, prompt->ids, prompt->count));
    SL_TRY(read_prompt(c, prompt, read));
    c->prefill_s = sl_clock_s() - start;
    c->why = asked_to_stop(c) ? "interrupted" : NULL;
    while (!c->why)
        SL_TRY(next(c));
    return sl_text_stream_put(c->stream, NULL, 0, true);
}
