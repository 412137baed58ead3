/* A trained tokenizer in the format of Hugging Face's `tokenizers`, with the pipeline of Llama 3: split pattern, bytes as characters. */
#include <stdio.h>

#include "core/file.h"
#include "core/json.h"
#include "text/bpe.h"
#include "text/bpe_train.h"
#include "text/lexers.h"
#include "text/unicode.h"

/* The texts of all symbols, as they are written in the file, each with a NUL behind it. */
typedef struct pieces {
    sl_text text;
    size_t *start;
} pieces;

static sl_status write_pieces(const sl_merges *merges, pieces *p)
{
    SL_TRY(sl_alloc(&p->start, SL_TRAIN_BYTES + merges->count, sizeof *p->start));
    for (int32_t i = 0; i < SL_TRAIN_BYTES; i++) {
        char c[4];
        p->start[i] = p->text.length;
        sl_text_append(&p->text, c, (size_t) sl_utf8_put(sl_alphabet_of(sl_train_byte(i)), c));
        sl_text_append(&p->text, "", 1);
    }
    for (int64_t i = 0; i < merges->count; i++) {
        const int32_t parts[2] = {merges->items[i].left, merges->items[i].right};
        p->start[SL_TRAIN_BYTES + i] = p->text.length;
        for (int k = 0; k < 2; k++) {
            sl_text part = {0}; /* a copy: appending may move the text */
            SL_TRY(sl_text_status(&p->text));
            sl_text_printf(&part, "%s", p->text.data + p->start[parts[k]]);
            sl_text_append(&p->text, part.data, part.length);
            p->text.failed |= part.failed;
            sl_text_free(&part);
        }
        sl_text_append(&p->text, "", 1);
    }
    return sl_text_status(&p->text);
}

static void put_special(sl_json_writer *w, const char *content)
{
    sl_json_put_string(w, "content", content);
    sl_json_put_bool(w, "single_word", false);
    sl_json_put_bool(w, "lstrip", false);
    sl_json_put_bool(w, "rstrip", false);
    sl_json_put_bool(w, "normalized", false);
    sl_json_put_bool(w, "special", true);
}

static void put_byte_level(sl_json_writer *w, const char *key, bool trim_offsets)
{
    sl_json_begin_object(w, key);
    sl_json_put_string(w, "type", "ByteLevel");
    sl_json_put_bool(w, "add_prefix_space", false);
    sl_json_put_bool(w, "trim_offsets", trim_offsets);
    sl_json_put_bool(w, "use_regex", false);
    sl_json_end_object(w);
}

static void put_pre_tokenizer(sl_json_writer *w)
{
    sl_json_begin_object(w, "pre_tokenizer");
    sl_json_put_string(w, "type", "Sequence");
    sl_json_begin_array(w, "pretokenizers");
    sl_json_begin_object(w, NULL);
    sl_json_put_string(w, "type", "Split");
    sl_json_begin_object(w, "pattern");
    sl_json_put_string(w, "Regex", sl_pattern_llama3);
    sl_json_end_object(w);
    sl_json_put_string(w, "behavior", "Isolated");
    sl_json_put_bool(w, "invert", false);
    sl_json_end_object(w);
    put_byte_level(w, NULL, true);
    sl_json_end_array(w);
    sl_json_end_object(w);
}

static void put_model(sl_json_writer *w, const char *const *special, int64_t n_special, const sl_merges *merges,
                      const pieces *p)
{
    sl_json_begin_object(w, "model");
    sl_json_put_string(w, "type", "BPE");
    sl_json_put_null(w, "dropout");
    sl_json_put_null(w, "unk_token");
    sl_json_put_null(w, "continuing_subword_prefix");
    sl_json_put_null(w, "end_of_word_suffix");
    sl_json_put_bool(w, "fuse_unk", false);
    sl_json_put_bool(w, "byte_fallback", false);
    sl_json_put_bool(w, "ignore_merges", false);
    sl_json_begin_object(w, "vocab");
    for (int64_t i = 0; i < n_special; i++)
        sl_json_put_i64(w, special[i], i);
    for (int64_t i = 0; i < SL_TRAIN_BYTES + merges->count; i++)
        sl_json_put_i64(w, p->text.data + p->start[i], n_special + i);
    sl_json_end_object(w);
    sl_json_begin_array(w, "merges");
    for (int64_t i = 0; i < merges->count; i++) {
        sl_json_begin_array(w, NULL);
        sl_json_put_string(w, NULL, p->text.data + p->start[merges->items[i].left]);
        sl_json_put_string(w, NULL, p->text.data + p->start[merges->items[i].right]);
        sl_json_end_array(w);
    }
    sl_json_end_array(w);
    sl_json_end_object(w);
}

static sl_status write_file(const char *folder, const char *name, sl_text *text)
{
    sl_text path = {0};
    sl_text_append(text, "\n", 1);
    sl_text_printf(&path, "%s/%s", folder, name);
    sl_status status = sl_text_status(text);
    if (status == SL_OK)
        status = sl_text_status(&path);
    if (status == SL_OK)
        status = sl_file_write_atomic(path.data, text->data, text->length);
    sl_text_free(&path);
    sl_text_free(text);
    return status;
}

static sl_status write_config(const char *folder, const char *const *special, int64_t n_special)
{
    sl_json_writer w = {.indent = true};
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    sl_json_put_string(&w, "bos_token", special[0]);
    sl_json_put_string(&w, "eos_token", special[0]);
    sl_json_put_bool(&w, "clean_up_tokenization_spaces", false);
    sl_json_begin_object(&w, "added_tokens_decoder");
    for (int64_t i = 0; i < n_special; i++) {
        char id[32];
        snprintf(id, sizeof id, "%lld", (long long) i);
        sl_json_begin_object(&w, id);
        put_special(&w, special[i]);
        sl_json_end_object(&w);
    }
    sl_json_end_object(&w);
    sl_json_end_object(&w);
    return write_file(folder, "tokenizer_config.json", &w.text);
}

static sl_status write_tokenizer(const char *folder, const char *const *special, int64_t n_special,
                                 const sl_merges *merges, const pieces *p)
{
    sl_json_writer w = {.indent = true};
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "version", "1.0");
    sl_json_put_null(&w, "truncation");
    sl_json_put_null(&w, "padding");
    sl_json_begin_array(&w, "added_tokens");
    for (int64_t i = 0; i < n_special; i++) {
        sl_json_begin_object(&w, NULL);
        sl_json_put_i64(&w, "id", i);
        put_special(&w, special[i]);
        sl_json_end_object(&w);
    }
    sl_json_end_array(&w);
    sl_json_put_null(&w, "normalizer");
    put_pre_tokenizer(&w);
    put_byte_level(&w, "post_processor", false);
    put_byte_level(&w, "decoder", true);
    put_model(&w, special, n_special, merges, p);
    sl_json_end_object(&w);
    return write_file(folder, "tokenizer.json", &w.text);
}

sl_status sl_tokenizer_write(const char *folder, const char *const *special, int64_t n_special, const sl_merges *merges)
{
    pieces p = {.start = NULL};
    sl_status status = sl_dir_create(folder);
    if (status == SL_OK)
        status = write_pieces(merges, &p);
    if (status == SL_OK)
        status = write_config(folder, special, n_special);
    if (status == SL_OK)
        status = write_tokenizer(folder, special, n_special, merges, &p);
    sl_text_free(&p.text);
    sl_free(p.start);
    return status;
}
