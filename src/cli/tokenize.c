/*
 * `sluice tokenize`: text to tokens and back. With --out, files become a shard, with the tokens that training makes of them
 * (data/encoding.h): records are read in batches, the records of a batch are encoded by all threads, each into an array of its own, and
 * written in the order of the files. So the shard does not depend on the number of threads, and memory holds one batch.
 */
#include "model/model.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/tokenize_chat.h"
#include "cli/tokenize_files.h"
#include "cli/tokenize_train.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/pool.h"
#include "data/shard.h"

static const char usage[] =
    "usage: sluice tokenize --tokenizer DIR (--data PATHS | --text TEXT) [--out FILE] [--decode]\n"
    "       sluice tokenize --train --vocab N --data PATHS --out DIR\n"
    "\n"
    "Turns text into token ids by a model's own tokenizer.json (or a tiktoken file). With --out, --data\n"
    "becomes a token shard for `sluice train --data FILE`, with the tokens that training makes of the same\n"
    "files: every document begins with the separator. A text file is a document, and so is a record of JSON\n"
    "or parquet files. Special tokens in documents are text unless --special is given. Without --out, ids are printed "
    "as transformers gives them: with the tokens that the\n"
    "tokenizer adds around a text, and special tokens recognized, unless --plain is given.\n"
    "\n"
    "With --train, a byte-level BPE tokenizer is made from --data, as a folder that Hugging Face's libraries\n"
    "read too.";

static const sl_option table[] = {
    {"tokenizer", "DIR|FILE", SL_OPT_STRING, NULL, "Tokenizer",
     "a model's folder, a tokenizer.json, a tiktoken file, or ORG/NAME in the local Hugging Face cache"},
    {"data", "PATHS", SL_OPT_STRING, NULL, "Input",
     "files and folders, separated by commas: text, JSON, parquet, also as .gz and .zst"},
    {"data-format", "auto|text|jsonl|parquet", SL_OPT_STRING, NULL, "Input",
     "what --data holds; default: as the files say"},
    {"data-field", "NAME", SL_OPT_STRING, NULL, "Input", "the field of records that holds the text"},
    {"text", "TEXT", SL_OPT_STRING, NULL, "Input", "the text itself; with --decode the ids, as \"1 2 3\" or JSON"},
    {"decode", NULL, SL_OPT_FLAG, "false", "Input", "the input is ids (or a token shard): print their text"},
    {"chat", "all|assistant|completion", SL_OPT_STRING, NULL, "Input",
     "print the chats of --data as the model's template writes them, with what the loss counts marked"},
    {"special", NULL, SL_OPT_FLAG, "false", "Tokens", "--out: special tokens in documents are tokens, not text"},
    {"plain", NULL, SL_OPT_FLAG, "false", "Tokens",
     "without --out: special tokens are text, and nothing is added; --decode leaves special tokens out"},
    {"separator", "TOKEN|none", SL_OPT_STRING, NULL, "Tokens",
     "--out: what begins every document; default: what the tokenizer puts before texts, else its end token"},
    {"train", NULL, SL_OPT_FLAG, "false", "Training",
     "make a tokenizer from --data and write it into the folder --out"},
    {"vocab", "N", SL_OPT_I64, NULL, "Training", "--train: tokens, with 256 for bytes and the special ones"},
    {"special-tokens", "LIST", SL_OPT_STRING, "<|endoftext|>", "Training",
     "--train: separated by commas; the first one separates documents"},
    {"min-count", "N", SL_OPT_I64, "2", "Training", "--train: two tokens that meet less often do not become one"},
    {"out", "FILE|DIR", SL_OPT_STRING, NULL, "Output", "write a token shard, with --train a tokenizer's folder"},
    {"shard-tokens", "N", SL_OPT_I64, "1073741824", "Output", "--out: most tokens of a file; then FILE-00001, ..."},
    {"threads", "K", SL_OPT_I64, "0", "Output", "--out: threads; 0: one for each core"},
    {"json", NULL, SL_OPT_FLAG, "false", "Output", "print one JSON object"},
};

/* ---- printing ---- */

static void put_piece(sl_json_writer *w, const sl_tokenizer *t, int32_t id, sl_text *piece)
{
    size_t length;
    const char *text = sl_tokenizer_piece(t, id, &length);
    piece->length = 0;
    sl_text_append(piece, text ? text : "", text ? length : 0);
    sl_text_append(piece, "", 1);
    sl_json_put_string(w, NULL, piece->data ? piece->data : "");
}

static sl_status print_tokens(const sl_tokenizer *t, const sl_tokens *tokens, bool json)
{
    sl_json_writer w = {0};
    sl_text piece = {0};
    if (json) {
        sl_json_begin_object(&w, NULL);
        sl_json_begin_array(&w, "tokens");
        for (int64_t i = 0; i < tokens->count; i++)
            sl_json_put_i64(&w, NULL, tokens->ids[i]);
        sl_json_end_array(&w);
        sl_json_begin_array(&w, "pieces");
        for (int64_t i = 0; i < tokens->count; i++)
            put_piece(&w, t, tokens->ids[i], &piece);
        sl_json_end_array(&w);
        sl_json_end_object(&w);
    } else {
        for (int64_t i = 0; i < tokens->count; i++)
            sl_text_printf(&w.text, "%s%d", i ? " " : "", tokens->ids[i]);
    }
    sl_text_append(&w.text, "\n", 1);
    sl_text_free(&piece);
    return sl_cli_write(&w.text, NULL);
}

static sl_status encode_files(sl_encoder *encoder, const sl_options *options, unsigned flags, sl_tokens *tokens)
{
    sl_cli_files files = {.corpus = NULL};
    sl_record record;
    sl_text text = {0}; /* a prompt is read together with its completion */
    bool more = true;
    sl_status status = sl_cli_files_find(&files, options);
    while (status == SL_OK && more) {
        status = sl_cli_files_next(&files, &record, &more);
        if (status != SL_OK || !more)
            break;
        unsigned now = record.continued ? flags & ~(unsigned) SL_ENCODE_AROUND : flags;
        text.length = 0;
        sl_text_append(&text, record.text, record.length);
        sl_text_append(&text, record.completion ? record.completion : "", record.completion_length);
        status = sl_text_status(&text);
        if (status == SL_OK)
            status = sl_encode(encoder, text.data, text.length, now, tokens);
        sl_record_free(&record);
    }
    sl_text_free(&text);
    sl_cli_files_close(&files);
    return status;
}

static sl_status print(const sl_options *options, const sl_tokenizer *t)
{
    const char *text = sl_options_string(options, "text");
    unsigned flags = sl_options_flag(options, "plain") ? SL_ENCODE_PLAIN : SL_ENCODE_AROUND | SL_ENCODE_SPECIAL;
    sl_tokens tokens = {NULL, 0, 0};
    sl_encoder *encoder;
    SL_TRY(sl_encoder_create(t, &encoder));
    sl_status status =
        text ? sl_encode(encoder, text, strlen(text), flags, &tokens) : encode_files(encoder, options, flags, &tokens);
    sl_encoder_destroy(encoder);
    if (status == SL_OK)
        status = print_tokens(t, &tokens, sl_options_flag(options, "json"));
    sl_tokens_free(&tokens);
    return status;
}

/* ---- decoding ---- */

static sl_status take_id(sl_tokens *tokens, const char *digits, size_t length)
{
    char number[32];
    int64_t id = -1;
    if (length && length < sizeof number) {
        memcpy(number, digits, length);
        number[length] = '\0';
        if (strspn(number, "0123456789") != length || sl_parse_i64(number, &id) != SL_OK)
            id = -1;
    }
    if (id < 0 || id > INT32_MAX)
        return sl_fail(SL_E_USAGE, "\"%.*s\" is no token id", (int) SL_MIN(length, 40), digits);
    if (tokens->count == tokens->capacity) {
        int64_t capacity = tokens->capacity * 2 + 64;
        SL_TRY(sl_grow(&tokens->ids, tokens->capacity, capacity, sizeof *tokens->ids));
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = (int32_t) id;
    return SL_OK;
}

/* "1 2 3", [1, 2, 3], or {"tokens": [1, 2, 3], ...} as --json prints it. */
static sl_status parse_ids(const char *name, const char *text, size_t length, sl_tokens *tokens)
{
    size_t blank = strspn(text, " \t\r\n");
    if (text[blank] != '[' && text[blank] != '{') {
        for (const char *at = text; *(at += strspn(at, " ,\t\r\n"));) {
            size_t digits = strcspn(at, " ,\t\r\n");
            SL_TRY(take_id(tokens, at, digits));
            at += digits;
        }
        return SL_OK;
    }
    sl_region *region;
    const sl_json *root = NULL;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_json_parse(region, name, text, length, &root);
    if (status == SL_OK && root->kind == SL_JSON_OBJECT)
        root = sl_json_get(root, "tokens");
    if (status == SL_OK && (!root || root->kind != SL_JSON_ARRAY))
        status = sl_fail(SL_E_FORMAT, "%s: there is no array of ids", name);
    for (const sl_json *id = root ? root->child : NULL; id && status == SL_OK; id = id->next) {
        char digits[32];
        int wrote = snprintf(digits, sizeof digits, "%lld", id->is_integer ? (long long) id->integer : -1LL);
        status = take_id(tokens, digits, (size_t) wrote);
    }
    sl_region_destroy(region);
    return status;
}

static sl_status shard_ids(const char *name, const char *bytes, size_t length, sl_tokens *tokens)
{
    sl_shard shard;
    SL_TRY(sl_shard_parse(name, bytes, length, (int64_t) length, &shard));
    const unsigned char *at = (const unsigned char *) bytes + SL_SHARD_HEADER_BYTES;
    SL_TRY(sl_alloc(&tokens->ids, SL_MAX(shard.tokens, 1), sizeof *tokens->ids));
    tokens->count = tokens->capacity = shard.tokens;
    for (int64_t i = 0; i < shard.tokens; i++, at += shard.kind == SL_TOKENS_U16 ? 2 : 4) {
        uint32_t id = (uint32_t) at[0] | (uint32_t) at[1] << 8;
        tokens->ids[i] =
            (int32_t) (shard.kind == SL_TOKENS_U16 ? id : id | (uint32_t) at[2] << 16 | (uint32_t) at[3] << 24);
    }
    return SL_OK;
}

static sl_status read_ids(const sl_options *options, sl_tokens *tokens)
{
    const char *text = sl_options_string(options, "text"), *path = sl_options_string(options, "data");
    char *bytes;
    size_t length;
    if (text)
        return parse_ids("--text", text, strlen(text), tokens);
    SL_TRY(sl_file_read_all(path, (size_t) 1 << 34, &bytes, &length));
    sl_status status = sl_shard_claims(bytes, length) ? shard_ids(path, bytes, length, tokens)
                                                      : parse_ids(path, bytes, length, tokens);
    sl_free(bytes);
    return status;
}

static sl_status decode(const sl_options *options, const sl_tokenizer *t)
{
    sl_tokens tokens = {NULL, 0, 0};
    sl_text text = {0};
    sl_status status = read_ids(options, &tokens);
    if (status == SL_OK)
        status = sl_decode(t, tokens.ids, tokens.count, sl_options_flag(options, "plain"), &text);
    sl_tokens_free(&tokens);
    if (status != SL_OK) {
        sl_text_free(&text);
        return status;
    }
    if (sl_options_flag(options, "json")) {
        sl_json_writer w = {0};
        sl_json_begin_object(&w, NULL);
        sl_json_put_text(&w, "text", text.data ? text.data : "", text.length);
        sl_json_end_object(&w);
        sl_text_free(&text);
        text = w.text;
    }
    if (sl_options_flag(options, "json") || !sl_options_string(options, "out"))
        sl_text_append(&text, "\n", 1);
    return sl_cli_write(&text, sl_options_string(options, "out"));
}

/* ---- shards ---- */

enum { BATCH_RECORDS = 4096, BATCH_BYTES_A_THREAD = 4 << 20 };

typedef struct batch {
    sl_record records[BATCH_RECORDS];
    sl_encoded encoded[BATCH_RECORDS];
    sl_status status[BATCH_RECORDS];
    int64_t count;
} batch;

typedef struct run {
    sl_encoding *encoding;
    void **threads; /* of the encoding */
    int n_threads;
    sl_pool *pool;
    batch *batch;
    int64_t tokens, documents, bytes;
    double start_s, shown_s;
    double *encode_s; /* processor time of each thread inside the tokenizer */
} run;

static void encode_record(void *context, int64_t tile, int thread)
{
    run *r = context;
    sl_encoded *out = &r->batch->encoded[tile];
    struct timespec before, behind;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    out->tokens.count = 0;
    out->counted.length = out->bytes.each.length = 0;
    r->batch->status[tile] = r->encoding->class->encode(r->encoding, r->threads[thread], &r->batch->records[tile], out);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &behind);
    r->encode_s[thread] += (double) (behind.tv_sec - before.tv_sec) + 1e-9 * (double) (behind.tv_nsec - before.tv_nsec);
}

static sl_status read_batch(run *r, sl_cli_files *files)
{
    int64_t most = (int64_t) BATCH_BYTES_A_THREAD * sl_pool_threads(r->pool), bytes = 0;
    bool more = true;
    r->batch->count = 0;
    while (r->batch->count < BATCH_RECORDS && bytes < most) {
        sl_record *record = &r->batch->records[r->batch->count];
        SL_TRY(sl_cli_files_next(files, record, &more));
        if (!more)
            break;
        bytes += (int64_t) (record->length + record->completion_length);
        r->batch->count++;
    }
    r->bytes += bytes;
    return SL_OK;
}

static sl_status write_batch(run *r, sl_shard_writer *writer)
{
    for (int64_t i = 0; i < r->batch->count; i++) {
        const sl_tokens *tokens = &r->batch->encoded[i].tokens;
        if (r->batch->status[i] != SL_OK) /* the message was another thread's: encode it again here */
            encode_record(r, i, 0);
        SL_TRY(r->batch->status[i]);
        r->documents += !r->batch->records[i].continued;
        SL_TRY(sl_shard_writer_put(writer, tokens->ids, tokens->count));
        r->tokens += tokens->count;
    }
    return SL_OK;
}

static void show_progress(run *r, int64_t total)
{
    double now = sl_clock_s(), elapsed = now - r->start_s;
    char bytes[32], tokens[32], line[SL_CLI_LINE];
    sl_text bar = {0};
    if (!sl_cli_is_terminal() || now - r->shown_s < 0.1)
        return;
    r->shown_s = now;
    sl_text_bar(&bar, total > 0 ? (double) r->bytes / (double) total : 0, 20);
    snprintf(line, sizeof line, "%s  %s  %s tokens  %.0f MB/s", bar.data ? bar.data : "",
             sl_format_bytes((size_t) r->bytes, bytes), sl_format_count(r->tokens, tokens),
             (double) r->bytes / 1e6 / elapsed);
    sl_text_free(&bar);
    sl_cli_status_line(line);
}

static sl_status write_shard(run *r, sl_cli_files *files, sl_shard_writer *writer)
{
    for (;;) {
        sl_status status = read_batch(r, files);
        if (status == SL_OK && r->batch->count == 0)
            return sl_shard_writer_commit(writer);
        if (status == SL_OK) {
            sl_pool_run(r->pool, encode_record, r, r->batch->count);
            status = write_batch(r, writer);
        }
        for (int64_t i = 0; i < r->batch->count; i++)
            sl_record_free(&r->batch->records[i]);
        SL_TRY(status);
        show_progress(r, files->bytes);
    }
}

static sl_status print_summary(const run *r, const sl_cli_files *files, const sl_shard_writer *writer,
                               const sl_options *options)
{
    const sl_record_counts *c = &files->counts;
    double elapsed = sl_clock_s() - r->start_s;
    double encode_s = 0;
    int64_t skipped = 0;
    char tokens[32], documents[32];
    sl_json_writer w = {0};
    for (int i = 0; i < sl_pool_threads(r->pool); i++)
        encode_s += r->encode_s[i];
    for (int i = 0; i < SL_RECORD_SKIPS; i++)
        skipped += c->skipped[i];
    if (sl_options_flag(options, "json")) {
        sl_json_begin_object(&w, NULL);
        sl_json_put_i64(&w, "tokens", r->tokens);
        sl_json_put_i64(&w, "documents", r->documents);
        sl_json_put_i64(&w, "bytes", r->bytes);
        sl_json_put_i64(&w, "files", files->count);
        sl_json_put_i64(&w, "shards", sl_shard_writer_files(writer));
        sl_json_put_i64(&w, "skipped_records", skipped);
        sl_json_put_i64(&w, "skipped_entries", files->skipped);
        sl_json_put_i64(&w, "separator", r->encoding->document_token);
        sl_json_put_f64(&w, "seconds", elapsed);
        sl_json_put_f64(&w, "encode_cpu_seconds", encode_s);
        sl_json_end_object(&w);
        sl_text_append(&w.text, "\n", 1);
        return sl_cli_write(&w.text, NULL);
    }
    sl_text_printf(&w.text, "%s: %s tokens of %s documents, %.3f bytes a token, %.1f MB/s\n",
                   sl_options_string(options, "out"), sl_format_count(r->tokens, tokens),
                   sl_format_count(r->documents, documents), r->tokens ? (double) r->bytes / (double) r->tokens : 0,
                   (double) r->bytes / 1e6 / elapsed);
    if (skipped)
        sl_text_printf(&w.text, "%lld records left out, the first: %s\n", (long long) skipped, c->first);
    if (files->skipped)
        sl_text_printf(&w.text, "%lld entries of folders left out: hidden, or no text by their names\n",
                       (long long) files->skipped);
    return sl_cli_write(&w.text, NULL);
}

static sl_status open_encoding(const sl_options *options, const char *path, const sl_tokenizer *t, run *r)
{
    const char *name = sl_options_string(options, "separator");
    sl_encoding_config config = {.tokenizer = path,
                                 .document_token = -1,
                                 .no_document_token = name && strcmp(name, "none") == 0,
                                 .special = sl_options_flag(options, "special"),
                                 .tokens_only = true};
    if (name && !config.no_document_token)
        config.document_token = sl_tokenizer_find(t, name);
    if (name && !config.no_document_token && config.document_token < 0)
        return sl_fail(SL_E_USAGE, "--separator %s: the tokenizer has no such token", name);
    SL_TRY(sl_encoding_open(&config, &r->encoding));
    SL_TRY(sl_pool_create((int) sl_options_i64(options, "threads"), &r->pool));
    SL_TRY(sl_alloc(&r->batch, 1, sizeof *r->batch));
    SL_TRY(sl_alloc(&r->threads, sl_pool_threads(r->pool), sizeof *r->threads));
    SL_TRY(sl_alloc(&r->encode_s, sl_pool_threads(r->pool), sizeof *r->encode_s));
    for (; r->n_threads < sl_pool_threads(r->pool); r->n_threads++)
        SL_TRY(r->encoding->class->open_thread(r->encoding, &r->threads[r->n_threads]));
    return SL_OK;
}

static void close_encoding(run *r)
{
    for (int i = 0; i < r->n_threads; i++)
        r->encoding->class->close_thread(r->threads[i]);
    for (int64_t i = 0; r->batch && i < BATCH_RECORDS; i++)
        sl_encoded_free(&r->batch->encoded[i]);
    sl_free(r->threads);
    sl_free(r->encode_s);
    sl_free(r->batch);
    sl_pool_destroy(r->pool);
    sl_encoding_close(r->encoding);
}

static sl_status tokenize(const sl_options *options, const char *path, const sl_tokenizer *t)
{
    run r = {.start_s = sl_clock_s()};
    sl_cli_files files = {.corpus = NULL};
    sl_shard_writer *writer = NULL;
    sl_status status;
    SL_TRY(sl_pool_check_threads(sl_options_i64(options, "threads")));
    SL_TRY_GOTO(open_encoding(options, path, t, &r), done);
    SL_TRY_GOTO(sl_cli_files_find(&files, options), done);
    SL_TRY_GOTO(sl_shard_writer_open(sl_options_string(options, "out"), r.encoding->size,
                                     (int32_t) r.encoding->document_token, sl_options_i64(options, "shard-tokens"),
                                     &writer),
                done);
    status = write_shard(&r, &files, writer);
    sl_cli_status_clear();
    if (status == SL_OK)
        status = print_summary(&r, &files, writer, options);
done:
    sl_shard_writer_destroy(writer);
    close_encoding(&r);
    sl_cli_files_close(&files);
    return status;
}

static sl_status run_tokenize(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    (void) operands, (void) n_operands;
    const char *path = sl_options_string(options, "tokenizer"), *text = sl_options_string(options, "text");
    char folder[SL_MODEL_PATH_BYTES];
    const char *data = sl_options_string(options, "data");
    bool out = sl_options_string(options, "out") != NULL, decodes = sl_options_flag(options, "decode");
    sl_tokenizer *t;
    if (sl_options_flag(options, "train"))
        return sl_cli_tokenize_train(options);
    if (sl_options_is_set(options, "vocab"))
        return sl_fail(SL_E_USAGE, "--vocab is the size of a tokenizer that --train makes: add --train");
    if (!path || !text == !data)
        return sl_fail(SL_E_USAGE,
                       "tokenize needs --tokenizer and one of --data and --text: sluice tokenize --tokenizer "
                       "my-model --data texts --out tokens.bin");
    if (out && text && !decodes)
        return sl_fail(SL_E_USAGE, "--out writes a shard of --data; --text is only printed");
    SL_TRY(sl_model_locate(path, folder));
    SL_TRY(sl_tokenizer_open(folder, &t));
    sl_status status = sl_options_string(options, "chat") ? sl_cli_tokenize_chat(options, folder, t)
                       : decodes                          ? decode(options, t)
                       : out                              ? tokenize(options, folder, t)
                                                          : print(options, t);
    sl_tokenizer_close(t);
    return status;
}

const sl_cli_command sl_cli_tokenize = {.usage = usage, .table = table, .count = SL_COUNT(table), .run = run_tokenize};
