/* Shows chats as training sees them: the template's text around the messages, and which tokens the loss counts. A wrong template or a
 * mask that misses the end of a turn shows here before a GPU is spent on it. */
#include "cli/tokenize_chat.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/tokenize_files.h"
#include "text/chat.h"

typedef struct chat_view {
    const sl_tokenizer *tokenizer;
    sl_encoder *encoder;
    sl_chat *chat;
    sl_train_on train_on;
    bool json;
    sl_tokens tokens;
    sl_text counted, out;
} chat_view;

static sl_status parse_train_on(const char *text, sl_train_on *out)
{
    static const char *const names[] = {"all", "assistant", "completion"}; /* in the order of sl_train_on */
    for (int i = 0; i < (int) SL_COUNT(names); i++) {
        if (strcmp(text, names[i]) != 0)
            continue;
        *out = (sl_train_on) i;
        return SL_OK;
    }
    return sl_fail(SL_E_USAGE, "--chat %s: choose all, assistant or completion", text);
}

/* The text of ids, with "«" and "»" around those that count. */
static sl_status put_text(chat_view *v)
{
    int64_t counted = 0;
    for (int64_t i = 0, from = 0; i < v->tokens.count; i++) {
        bool counts = v->counted.data[i];
        counted += counts;
        if (i + 1 < v->tokens.count && (v->counted.data[i + 1] != 0) == counts)
            continue;
        sl_text_printf(&v->out, "%s", counts ? "«" : "");
        SL_TRY(sl_decode(v->tokenizer, v->tokens.ids + from, i + 1 - from, false, &v->out));
        sl_text_printf(&v->out, "%s", counts ? "»" : "");
        from = i + 1;
    }
    char all[32], some[32];
    sl_text_printf(&v->out, "\n-- %s tokens, %s counted\n", sl_format_count(v->tokens.count, all),
                   sl_format_count(counted, some));
    return SL_OK;
}

static void put_json(chat_view *v)
{
    sl_json_writer w = {0};
    sl_text piece = {0};
    sl_json_begin_object(&w, NULL);
    sl_json_begin_array(&w, "tokens");
    for (int64_t i = 0; i < v->tokens.count; i++)
        sl_json_put_i64(&w, NULL, v->tokens.ids[i]);
    sl_json_end_array(&w);
    sl_json_begin_array(&w, "pieces");
    for (int64_t i = 0; i < v->tokens.count; i++) {
        size_t length = 0;
        const char *text = sl_tokenizer_piece(v->tokenizer, v->tokens.ids[i], &length);
        piece.length = 0;
        sl_text_append(&piece, text ? text : "", length);
        sl_json_put_string(&w, NULL, piece.data ? piece.data : "");
    }
    sl_json_end_array(&w);
    sl_json_begin_array(&w, "counted");
    for (int64_t i = 0; i < v->tokens.count; i++)
        sl_json_put_i64(&w, NULL, v->counted.data[i]);
    sl_json_end_array(&w);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    sl_text_append(&v->out, w.text.data, w.text.length);
    sl_text_free(&w.text);
    sl_text_free(&piece);
}

static sl_status put_chat(chat_view *v, const sl_record *record)
{
    const sl_chat_request request = {.messages = record->messages, .tools = record->tools};
    sl_train_on train_on =
        record->last_turn && v->train_on == SL_TRAIN_ON_ASSISTANT ? SL_TRAIN_ON_COMPLETION : v->train_on;
    v->tokens.count = 0;
    v->counted.length = 0;
    SL_TRY(sl_chat_encode(v->chat, v->encoder, &request, train_on, &v->tokens, &v->counted, NULL));
    if (v->json)
        put_json(v);
    else
        SL_TRY(put_text(v));
    return sl_text_status(&v->out);
}

static sl_status put_all(chat_view *v, sl_cli_files *files)
{
    for (;;) {
        sl_record record;
        bool more;
        SL_TRY(sl_cli_files_next(files, &record, &more));
        if (!more)
            return SL_OK;
        sl_status status = put_chat(v, &record);
        sl_record_free(&record);
        SL_TRY(status);
    }
}

sl_status sl_cli_tokenize_chat(const sl_options *options, const char *folder, const sl_tokenizer *tokenizer)
{
    chat_view v = {.tokenizer = tokenizer, .json = sl_options_flag(options, "json")};
    sl_cli_files files = {.chats = true};
    const char *data = sl_options_string(options, "data");
    sl_status status;
    SL_TRY(parse_train_on(sl_options_string(options, "chat"), &v.train_on));
    if (!data || sl_options_string(options, "out"))
        return sl_fail(SL_E_USAGE, "--chat prints the chats of --data; `sluice train --data` reads them as they are");
    SL_TRY(sl_chat_open(folder, &v.chat));
    SL_TRY_GOTO(sl_encoder_create(tokenizer, &v.encoder), done);
    SL_TRY_GOTO(sl_cli_files_find(&files, options), done);
    SL_TRY_GOTO(put_all(&v, &files), done);
    status = sl_cli_write(&v.out, NULL);
done:
    sl_cli_files_close(&files);
    sl_encoder_destroy(v.encoder);
    sl_chat_close(v.chat);
    sl_tokens_free(&v.tokens);
    sl_text_free(&v.counted);
    sl_text_free(&v.out);
    return status;
}
