/*
 * A conversation. Every turn is the model's own template over all messages so far, as training sees a chat: a template may write earlier
 * turns anew (some drop thoughts), and the text of an answer may be other tokens than those that were drawn. The session keeps what is
 * still the beginning of the new text, and reads the rest.
 *
 *     turn 1   | system user | answer |
 *     turn 2   | system user | answer   user | answer |      read: from the first token that differs
 */
#include <inttypes.h>
#include <string.h>

#include "infer/generate_internal.h"

enum { CONTEXT = 4096 };

/* ---- messages ---- */

static sl_status add_message(sl_generate *g, const char *role, const char *content)
{
    sl_json_writer w = {0};
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "role", role);
    sl_json_put_string(&w, "content", content);
    sl_json_end_object(&w);
    sl_status status = sl_text_status(&w.text);
    if (status == SL_OK) {
        sl_text_printf(&g->talk.messages, "%s%s", g->talk.messages.length ? "," : "", w.text.data);
        status = sl_text_status(&g->talk.messages);
    }
    sl_text_free(&w.text);
    return status;
}

/* The tokens of the messages `items`, and which of them are an answer's. */
static sl_status encode(const sl_generate *g, const char *items, bool answer_follows, sl_tokens *tokens,
                        sl_text *counted)
{
    sl_region *region;
    sl_text list = {0};
    sl_chat_request request = {.add_generation_prompt = answer_follows};
    SL_TRY(sl_region_create(&region));
    sl_text_printf(&list, "[%s]", items);
    sl_status status = sl_text_status(&list);
    if (status == SL_OK)
        status = sl_json_parse(region, "the conversation", list.data, list.length, &request.messages);
    if (status == SL_OK)
        status = sl_chat_encode(g->talk.chat, sl_words_encoder(g->words), &request,
                                counted ? SL_TRAIN_ON_ASSISTANT : SL_TRAIN_ON_ALL, tokens, counted, NULL);
    sl_text_free(&list);
    sl_region_destroy(region);
    return status;
}

/* The token with which the template ends an answer, as training counts it: models that were fine-tuned with a template often have a
 * generation_config.json that does not name it. Where it cannot be told, the lists alone say what ends a text. */
static void find_end_of_turn(sl_generate *g)
{
    static const char items[] = "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}";
    sl_tokens tokens = {0};
    sl_text counted = {0};
    if (encode(g, items, false, &tokens, &counted) == SL_OK && (int64_t) counted.length == tokens.count) {
        int64_t last = tokens.count - 1;
        while (last >= 0 && !counted.data[last])
            last--;
        if (last >= 0 && sl_tokenizer_is_special(sl_encoder_tokenizer(sl_words_encoder(g->words)), tokens.ids[last]))
            sl_words_add_end(g->words, tokens.ids[last]);
    }
    sl_text_free(&counted);
    sl_tokens_free(&tokens);
}

/* ---- life ---- */

static sl_status open_chat(const sl_setup *setup, sl_generate *g)
{
    const sl_encoder *encoder = sl_words_encoder(g->words);
    if (!encoder)
        return sl_fail(
            SL_E_USAGE,
            "--chat needs a model folder with a tokenizer and a chat template, and model %s has no tokenizer",
            setup->model.name);
    SL_TRY(sl_chat_open(setup->model_folder, &g->talk.chat));
    sl_words_add_end(g->words, sl_tokenizer_eos(sl_encoder_tokenizer(encoder)));
    find_end_of_turn(g);
    return SL_OK;
}

static sl_status read_context(const sl_options *o, const sl_setup *setup, sl_generate *g)
{
    const sl_model *m = &setup->model;
    int64_t context = CONTEXT;
    if (m->max_positions)
        context = SL_MIN(context, m->max_positions);
    if (m->max_seqlen)
        context = SL_MIN(context, m->max_seqlen);
    if (sl_options_is_set(o, "context"))
        context = sl_options_i64(o, "context");
    if (context < 2 || context > SL_LONGEST_TEXT)
        return sl_fail(SL_E_USAGE, "--context %" PRId64 " is out of range: give 2 to %d", context, SL_LONGEST_TEXT);
    g->talk.capacity = context;
    return SL_OK;
}

sl_status sl_chat_begin(const sl_options *o, const sl_setup *setup, sl_generate *g)
{
    static const char *const others[] = {"system", "context"};
    const char *system = sl_options_string(o, "system");
    const bool chat = sl_options_flag(o, "chat");
    for (int64_t i = 0; i < SL_COUNT(others) && !chat; i++)
        if (sl_options_is_set(o, others[i]))
            return sl_fail(SL_E_USAGE, "--%s is of a conversation: give --chat too, or leave it out", others[i]);
    if (!chat)
        return SL_OK;
    if (sl_options_is_set(o, "prompt-ids"))
        return sl_fail(SL_E_USAGE,
                       "--chat takes texts, which its template frames: give --prompt instead of --prompt-ids");
    if (sl_options_is_set(o, "prompt") && sl_options_is_set(o, "context"))
        return sl_fail(SL_E_USAGE, "--context is of a conversation of several turns: leave it out with --prompt");
    SL_TRY(open_chat(setup, g));
    g->talk.max_tokens = g->most;
    if (system)
        SL_TRY(add_message(g, "system", system));
    if (!sl_options_is_set(o, "prompt"))
        return read_context(o, setup, g);
    SL_TRY(add_message(g, "user", sl_options_string(o, "prompt")));
    return encode(g, g->talk.messages.data, true, &g->prompt, NULL);
}

void sl_chat_end(sl_generate *g)
{
    sl_chat_close(g->talk.chat);
    sl_text_free(&g->talk.messages);
    sl_tokens_free(&g->talk.read);
}

/* ---- turns ---- */

/* How much of the new prompt the session has read. Its last token is read in any case: its logits are needed. */
static int64_t find_common(const sl_generate *g)
{
    const sl_tokens *read = &g->talk.read, *prompt = &g->prompt;
    int64_t common = 0;
    while (common < SL_MIN(read->count, prompt->count - 1) && read->ids[common] == prompt->ids[common])
        common++;
    return common;
}

/* The session has read the prompt, or its beginning, and all tokens it was given of those made. */
static sl_status note_read(sl_generate *g)
{
    sl_session_view view;
    sl_tokens *read = &g->talk.read;
    sl_session_look(g->session, &view);
    if (read->capacity < view.read) {
        SL_TRY(sl_grow(&read->ids, read->count, view.read, sizeof *read->ids));
        read->capacity = view.read;
    }
    for (int64_t i = 0; i < view.read; i++)
        read->ids[i] = i < g->prompt.count ? g->prompt.ids[i] : g->made.ids[i - g->prompt.count];
    read->count = view.read;
    return SL_OK;
}

static sl_status answer(sl_generate *g, sl_text_fn fn, void *user, sl_generated *out)
{
    const int64_t space = g->talk.capacity - g->prompt.count, common = find_common(g);
    if (space < 1)
        return sl_fail(SL_E_USAGE,
                       "the conversation has %" PRId64 " tokens, and memory is planned for %" PRId64
                       ": give a larger --context, or begin a new one",
                       g->prompt.count, g->talk.capacity);
    g->most = SL_MIN(g->talk.max_tokens, space);
    g->talk.read.count = common;
    sl_session_rewind(g->session, common);
    SL_TRY(sl_generate_text(g, common, fn, user, out));
    SL_TRY(note_read(g));
    return add_message(g, "assistant", out->text);
}

sl_status sl_generate_say(sl_generate *g, const char *turn, sl_text_fn fn, void *user, sl_generated *out)
{
    if (!g->talk.chat || !g->talk.capacity)
        return sl_fail(SL_E_USAGE, "the generation is no conversation: give --chat, and no --prompt");
    const size_t before = g->talk.messages.length;
    g->prompt.count = 0;
    SL_TRY(add_message(g, "user", turn));
    sl_status status = encode(g, g->talk.messages.data, true, &g->prompt, NULL);
    if (status == SL_OK)
        status = answer(g, fn, user, out);
    if (status != SL_OK) /* as if nothing was said */
        g->talk.messages.length = before;
    return status;
}
