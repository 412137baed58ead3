/*
 * Prompt -> tokens -> read by chunks -> logits -> a token -> text, one token after the other. Everything that can be wrong with the options
 * is found before the weights are read: the number of the prompt's tokens decides how much K/V is planned for.
 */
#include "infer/generate_internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "infer/options.h"

static sl_option options[SL_INFER_OPTIONS];
static int64_t n_options;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
    static const char text[] = "Model and text", draw[] = "Sampling";
    static const sl_option own[] = {
        {"prompt", "TEXT", SL_OPT_STRING, "", text,
         "What the text begins with. Without it the model begins a document of its own."},
        {"prompt-ids", "ID[,ID...]", SL_OPT_STRING, NULL, text,
         "The prompt as tokens, taken as they are: nothing is put in front of them."},
        {"chat", NULL, SL_OPT_FLAG, "false", text,
         "Answer in a conversation, in the form of the model's chat template: --prompt is what the user says, and "
         "without "
         "it every line of stdin is a turn."},
        {"system", "TEXT", SL_OPT_STRING, NULL, text, "With --chat: the message of the system, before all others."},
        {"context", "TOKENS", SL_OPT_I64, NULL, text,
         "With --chat and without --prompt: the longest conversation, whose K/V memory is planned for. Default: 4096, "
         "or "
         "the positions that the model is made for if these are fewer."},
        {"max-tokens", "N", SL_OPT_I64, "256", text,
         "The most tokens to make. Memory for the K/V of the prompt and of so many tokens is part of the plan."},
        {"stop", "TEXT[|TEXT...]", SL_OPT_STRING, NULL, text,
         "Texts that end the generation, up to 16; \\n is a line's end. They are not printed."},
        {"ignore-end", NULL, SL_OPT_FLAG, "false", text, "Go on behind a token that ends the text."},
        {"temperature", "T", SL_OPT_F64, "0.8", draw,
         "Divides the logits: below 1 likely tokens become likelier. 0 takes the most likely one always (greedy)."},
        {"top-k", "N", SL_OPT_I64, "0", draw, "Choose among the N most likely tokens; 0: among all."},
        {"top-p", "SHARE", SL_OPT_F64, "0.95", draw,
         "Choose among the fewest most likely tokens that make up this share of the probability; 1: all."},
        {"seed", "N", SL_OPT_I64, "1", draw,
         "The same seed gives the same text, whatever the budgets and the number of threads."},
    };
    sl_infer_take(options, &n_options, "model", text,
                  "A Hugging Face folder with its weights, the folder of a run (its newest checkpoint), or a preset or "
                  "config.json together with --init-from.");
    sl_infer_take(options, &n_options, "init-from", text, NULL);
    for (int64_t i = 0; i < SL_COUNT(own); i++)
        options[n_options++] = own[i];
    sl_infer_take_machine(options, &n_options);
}

const sl_option *sl_generate_table(int64_t *count)
{
    pthread_once(&once, fill_table);
    *count = n_options;
    return options;
}

/* ---- options ---- */

/* "a|b\n" becomes the texts "a" and "b" with a line's end. */
static sl_status read_stops(const char *given, sl_generate *g)
{
    for (const char *c = given; c && *c; c++) {
        const bool line = c[0] == '\\' && c[1] == 'n';
        const char byte = line ? '\n' : *c == '|' ? 0 : *c;
        sl_text_append(&g->stop_text, &byte, 1);
        c += line;
    }
    if (!given)
        return SL_OK;
    sl_text_append(&g->stop_text, "", 1);
    SL_TRY(sl_text_status(&g->stop_text));
    for (size_t at = 0; at < g->stop_text.length; at += strlen(g->stop_text.data + at) + 1) {
        if (!g->stop_text.data[at])
            return sl_fail(SL_E_USAGE, "--stop \"%s\" has an empty text: give texts with | between them", given);
        if (g->stream.n_stops == SL_MOST_STOPS)
            return sl_fail(SL_E_USAGE, "--stop \"%s\" has more than %d texts", given, SL_MOST_STOPS);
        g->stops[g->stream.n_stops++] = g->stop_text.data + at;
    }
    return SL_OK;
}

static sl_status read_options(const sl_options *o, sl_generate *g)
{
    g->sampling = (sl_sampling){.temperature = sl_options_f64(o, "temperature"),
                                .top_k = sl_options_i64(o, "top-k"),
                                .top_p = sl_options_f64(o, "top-p"),
                                .seed = (uint64_t) sl_options_i64(o, "seed")};
    g->most = sl_options_i64(o, "max-tokens");
    g->ignore_end = sl_options_flag(o, "ignore-end");
    if (g->most < 1 || g->most > SL_LONGEST_TEXT)
        return sl_fail(SL_E_USAGE, "--max-tokens %" PRId64 " is out of range: give 1 to %d", g->most, SL_LONGEST_TEXT);
    SL_TRY(sl_sampling_check(&g->sampling));
    return read_stops(sl_options_string(o, "stop"), g);
}

static sl_status read_prompt(const sl_options *o, const sl_setup *setup, sl_generate *g)
{
    const char *ids = sl_options_string(o, "prompt-ids");
    if (ids && sl_options_is_set(o, "prompt"))
        return sl_fail(SL_E_USAGE, "--prompt and --prompt-ids exclude each other: drop one of them");
    const sl_words_config words = {setup->tokenizer, setup->model_folder, setup->model.name, setup->model.vocab};
    SL_TRY(sl_words_open(&words, &g->words));
    SL_TRY(sl_chat_begin(o, setup, g));
    if (g->talk.capacity)
        return SL_OK;
    if (!g->talk.chat)
        SL_TRY(ids ? sl_words_parse_ids(ids, &g->prompt)
                   : sl_words_encode(g->words, sl_options_string(o, "prompt"), &g->prompt));
    if (g->prompt.count > SL_LONGEST_TEXT)
        return sl_fail(SL_E_USAGE, "the prompt has %" PRId64 " tokens, more than %d", g->prompt.count, SL_LONGEST_TEXT);
    const int64_t context = setup->model.max_seqlen; /* of learned positions: there are no others */
    if (context && g->prompt.count >= context)
        return sl_fail(SL_E_USAGE,
                       "the prompt has %" PRId64 " tokens, but model %s has learned %" PRId64
                       " positions: nothing could follow; use a shorter prompt",
                       g->prompt.count, setup->model.name, context);
    if (context)
        g->most = SL_MIN(g->most, context - g->prompt.count);
    if (setup->model.max_positions && g->prompt.count + g->most > setup->model.max_positions)
        sl_warn("the prompt's %" PRId64 " and %" PRId64 " more tokens may pass the %" PRId64
                " positions that model %s is made for (max_position_embeddings)",
                g->prompt.count, g->most, setup->model.max_positions, setup->model.name);
    return SL_OK;
}

static sl_status check_weights(const sl_setup *setup)
{
    char path[1024];
    sl_tensors *tensors = NULL;
    SL_TRY(sl_weights_find(setup, path));
    if (!path[0])
        return sl_fail(SL_E_USAGE,
                       "model %s has no weights to generate with: give --model a folder that holds them, or "
                       "--init-from",
                       setup->model.name);
    SL_TRY(sl_weights_open(setup, path, &tensors));
    sl_tensors_close(tensors);
    return SL_OK;
}

/* ---- life ---- */

static sl_status begin(const sl_options *o, sl_progress_fn progress, void *user, sl_generate *g)
{
    sl_setup setup;
    SL_TRY(read_options(o, g));
    SL_TRY(sl_infer_job(o, &g->job));
    SL_TRY(sl_job_set_progress(g->job, progress, user));
    SL_TRY(sl_job_set(g->job, "seqlen", "1"));
    SL_TRY(sl_setup_resolve(g->job, &setup));
    SL_TRY(check_weights(&setup));
    SL_TRY(read_prompt(o, &setup, g));
    SL_TRY(sl_alloc(&g->made.ids, g->most, sizeof *g->made.ids));
    SL_TRY(sl_session_create(g->job, g->talk.capacity ? g->talk.capacity : g->prompt.count + g->most, &g->session));
    return sl_sampler_create(&g->sampling, setup.model.vocab, &g->sampler);
}

sl_status sl_generate_create(const sl_options *o, sl_progress_fn progress, void *user, sl_generate **out)
{
    sl_generate *g;
    SL_TRY(sl_alloc(&g, 1, sizeof *g));
    const sl_status status = begin(o, progress, user, g);
    if (status == SL_OK)
        *out = g;
    else
        sl_generate_destroy(g);
    return status;
}

void sl_generate_destroy(sl_generate *g)
{
    if (!g)
        return;
    sl_sampler_destroy(g->sampler);
    sl_session_destroy(g->session);
    sl_chat_end(g);
    sl_words_close(g->words);
    sl_tokens_free(&g->prompt);
    sl_tokens_free(&g->made);
    sl_text_stream_free(&g->stream);
    sl_text_free(&g->stop_text);
    sl_job_destroy(g->job);
    sl_free(g);
}

void sl_generate_request_stop(sl_generate *g)
{
    atomic_store_explicit(&g->stop, true, memory_order_relaxed);
}

/* ---- the text ---- */

sl_status sl_generate_text(sl_generate *g, int64_t read, sl_text_fn fn, void *user, sl_generated *out)
{
    sl_continuation text = {.model = sl_session_model(g->session),
                            .words = g->words,
                            .sampler = g->sampler,
                            .stream = &g->stream,
                            .stop = &g->stop,
                            .most = g->most,
                            .drawn = g->drawn,
                            .ignore_end = g->ignore_end,
                            .made = &g->made};
    const double start = sl_clock_s();
    sl_text_stream_free(&g->stream);
    g->stream = (sl_text_stream){.stops = g->stops, .n_stops = g->stream.n_stops, .fn = fn, .user = user};
    g->made.count = 0;
    SL_TRY(sl_continue(&text, &g->prompt, read));
    g->drawn = text.drawn;
    *out = (sl_generated){
        .text = g->stream.text.data ? g->stream.text.data : "",
        .tokens = g->made.ids,
        .n_tokens = g->made.count,
        .n_prompt = g->prompt.count,
        .n_read = g->prompt.count - read,
        .stop = text.why,
        .prefill_s = text.prefill_s,
        .decode_s = sl_clock_s() - start - text.prefill_s,
    };
    return SL_OK;
}

sl_status sl_generate_run(sl_generate *g, sl_text_fn fn, void *user, sl_generated *out)
{
    return g->talk.capacity ? sl_fail(SL_E_USAGE, "a conversation needs something to answer: give --prompt")
                            : sl_generate_text(g, 0, fn, user, out);
}

/* ---- figures ---- */

void sl_generate_look(const sl_generate *g, sl_session_view *view)
{
    sl_session_look(g->session, view);
}

double sl_generated_speed(const sl_generated *r)
{
    return r->n_tokens > 1 && r->decode_s > 0 ? (double) (r->n_tokens - 1) / r->decode_s : 0;
}

static void put_memory(const sl_session_view *v, sl_json_writer *w)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        sl_json_begin_object(w, tier == SL_TIER_DEVICE ? "device_memory" : "host_memory");
        sl_json_put_bytes(w, "budget_bytes", v->budget_bytes[tier]);
        sl_json_put_bytes(w, "peak_bytes", v->peak_bytes[tier]);
        sl_json_end_object(w);
    }
}

void sl_generate_put(const sl_generate *g, const sl_generated *r, sl_json_writer *w)
{
    sl_session_view v;
    sl_session_look(g->session, &v);
    sl_json_begin_object(w, NULL);
    sl_json_put_string(w, "text", r->text);
    sl_json_begin_array(w, "tokens");
    for (int64_t i = 0; i < r->n_tokens; i++)
        sl_json_put_i64(w, NULL, r->tokens[i]);
    sl_json_end_array(w);
    sl_json_put_i64(w, "prompt_tokens", r->n_prompt);
    sl_json_put_string(w, "stop", r->stop);
    sl_json_put_f64(w, "temperature", g->sampling.temperature);
    sl_json_put_i64(w, "top_k", g->sampling.top_k);
    sl_json_put_f64(w, "top_p", g->sampling.top_p);
    sl_json_put_i64(w, "seed", (int64_t) g->sampling.seed);
    sl_json_put_string(w, "model", v.setup->model.name);
    sl_json_put_string(w, "weights", v.weights);
    sl_json_put_string(w, "device", v.setup->device);
    sl_json_put_string(w, "precision", sl_precision_name(v.setup->program.precision));
    sl_json_put_f64(w, "prefill_seconds", r->prefill_s);
    sl_json_put_f64(w, "decode_seconds", r->decode_s);
    sl_json_put_f64(w, "tokens_per_s", sl_generated_speed(r));
    sl_json_put_bytes(w, "cache_bytes", v.cache_bytes);
    sl_json_put_bytes(w, "streamed_bytes", v.streamed_bytes);
    put_memory(&v, w);
    sl_json_end_object(w);
}
