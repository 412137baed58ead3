/*
 * Records are read in batches whose size depends on the text alone; the threads count the words of a batch, each in a table of its own,
 * and the tables are added up behind every batch. Sums do not depend on who counted what, and rare words are only left out between
 * batches: so the tokenizer is the same for every number of threads, and memory holds a batch and the distinct words.
 */
#include "cli/tokenize_train.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/tokenize_files.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/log.h"
#include "core/pool.h"
#include "text/bpe_train.h"

enum { BATCH_RECORDS = 4096, BATCH_BYTES = 32 << 20, MOST_SPECIAL = 64, SPECIAL_BYTES = 256, MOST_VOCAB = 1 << 22 };

/* Of distinct words. Training takes up to 48 times as much. */
enum { MOST_WORD_BYTES = 64 << 20 };

typedef struct training {
    const char *folder;
    int64_t vocab, least;
    char names[MOST_SPECIAL][SPECIAL_BYTES];
    const char *special[MOST_SPECIAL];
    int64_t n_special;
    sl_pool *pool;
    sl_record records[BATCH_RECORDS];
    sl_status status[BATCH_RECORDS];
    int64_t n_records;
    sl_word_counts *counts; /* one for each thread */
    sl_word_counts words;   /* of all batches */
    int64_t left_out;
    double start_s, counted_s;
} training;

/* ---- what is asked for ---- */

static sl_status add_special(training *t, const char *name)
{
    size_t length = strlen(name), characters = 0;
    const char *at = name;
    if (t->n_special == MOST_SPECIAL)
        return sl_fail(SL_E_USAGE, "--special-tokens lists more than %d", MOST_SPECIAL);
    if (length + 1 >= SPECIAL_BYTES)
        return sl_fail(SL_E_USAGE, "--special-tokens: \"%.40s...\" has %d bytes or more", name, SPECIAL_BYTES - 1);
    for (int64_t i = 0; i < t->n_special; i++)
        if (strcmp(t->special[i], name) == 0)
            return sl_fail(SL_E_USAGE, "--special-tokens lists \"%s\" twice", name);
    while (*at) {
        int bytes = sl_utf8_length(at, name + length);
        if (!bytes)
            return sl_fail(SL_E_USAGE, "--special-tokens: \"%s\" is not UTF-8", name);
        at += bytes;
        characters++;
    }
    if (characters < 2)
        return sl_fail(SL_E_USAGE,
                       "--special-tokens: \"%s\" is one character, which texts hold too: give a longer name", name);
    strcpy(t->names[t->n_special], name);
    t->special[t->n_special] = t->names[t->n_special];
    t->n_special++;
    return SL_OK;
}

static sl_status read_options(training *t, const sl_options *options)
{
    const char *list = sl_options_string(options, "special-tokens");
    char name[SPECIAL_BYTES], path[1200];
    t->folder = sl_options_string(options, "out");
    if (!t->folder || !sl_options_string(options, "data") || !sl_options_is_set(options, "vocab"))
        return sl_fail(SL_E_USAGE, "--train needs --vocab, --data and --out: sluice tokenize --train --vocab 8192 "
                                   "--data texts --out my-tokenizer");
    if (sl_options_string(options, "tokenizer") || sl_options_string(options, "text") ||
        sl_options_string(options, "chat") || sl_options_flag(options, "decode") ||
        sl_options_flag(options, "special") || sl_options_flag(options, "plain"))
        return sl_fail(SL_E_USAGE, "--train makes a tokenizer from --data: leave out --tokenizer, --text, --chat, "
                                   "--decode, --special and --plain");
    while (sl_next_item(&list, name, sizeof name))
        SL_TRY(add_special(t, name));
    if (!t->n_special)
        return sl_fail(SL_E_USAGE, "--special-tokens lists none, and one has to separate documents");
    t->vocab = sl_options_i64(options, "vocab");
    t->least = sl_options_i64(options, "min-count");
    if (t->vocab < SL_TRAIN_BYTES + t->n_special || t->vocab > MOST_VOCAB)
        return sl_fail(SL_E_USAGE, "--vocab %lld: give %lld (%d bytes and %lld special) to %d tokens",
                       (long long) t->vocab, (long long) (SL_TRAIN_BYTES + t->n_special), SL_TRAIN_BYTES,
                       (long long) t->n_special, MOST_VOCAB);
    if (t->least < 1)
        return sl_fail(SL_E_USAGE, "--min-count %lld: give 1 or more", (long long) t->least);
    snprintf(path, sizeof path, "%.1100s/tokenizer.json", t->folder);
    if (sl_file_exists(path))
        return sl_fail(SL_E_USAGE, "%s is there already: give another --out, or remove it first", path);
    return sl_pool_check_threads(sl_options_i64(options, "threads"));
}

/* ---- words ---- */

static void count_record(void *context, int64_t tile, int thread)
{
    training *t = context;
    const sl_record *record = &t->records[tile];
    sl_status status = sl_word_counts_text(&t->counts[thread], record->text, record->length);
    if (status == SL_OK && record->kind == SL_RECORD_COMPLETION)
        status = sl_word_counts_text(&t->counts[thread], record->completion, record->completion_length);
    t->status[tile] = status;
}

static sl_status read_batch(training *t, sl_cli_files *files)
{
    size_t bytes = 0;
    bool more = true;
    t->n_records = 0;
    while (t->n_records < BATCH_RECORDS && bytes < BATCH_BYTES) {
        sl_record *record = &t->records[t->n_records];
        SL_TRY(sl_cli_files_next(files, record, &more));
        if (!more)
            break;
        bytes += record->length + record->completion_length;
        t->n_records++;
    }
    return SL_OK;
}

static sl_status count_batch(training *t)
{
    sl_pool_run(t->pool, count_record, t, t->n_records);
    for (int64_t i = 0; i < t->n_records; i++)
        if (t->status[i] != SL_OK) /* the message was another thread's */
            return sl_fail(t->status[i], "there is not enough memory for the words of the text: give less of it");
    for (int i = 0; i < sl_pool_threads(t->pool); i++)
        SL_TRY(sl_word_counts_join(&t->words, &t->counts[i]));
    return sl_word_counts_bound(&t->words, MOST_WORD_BYTES, &t->left_out);
}

static sl_status count_words(training *t, sl_cli_files *files)
{
    do {
        sl_status status = read_batch(t, files);
        if (status == SL_OK)
            status = count_batch(t);
        for (int64_t i = 0; i < t->n_records; i++)
            sl_record_free(&t->records[i]);
        SL_TRY(status);
    } while (t->n_records);
    t->counted_s = sl_clock_s();
    return t->words.n_words ? SL_OK : sl_fail(SL_E_USAGE, "--data holds no text to train a tokenizer on");
}

/* ---- the result ---- */

static void warn(const training *t, int64_t tokens)
{
    char words[32], have[32], wanted[32];
    if (t->left_out)
        sl_warn("the text has more distinct words than memory is meant for: %s rare ones are left out",
                sl_format_count(t->left_out, words));
    if (tokens < t->vocab)
        sl_warn("the text gives %s tokens, not %s: no two of them meet %lld time%s or more",
                sl_format_count(tokens, have), sl_format_count(t->vocab, wanted), (long long) t->least,
                sl_cli_plural(t->least));
}

static sl_status print_summary(const training *t, const sl_merges *merges, bool json)
{
    int64_t tokens = t->n_special + SL_TRAIN_BYTES + merges->count;
    double now = sl_clock_s(), each = merges->tokens ? (double) merges->bytes / (double) merges->tokens : 0;
    char size[32], words[32], counting[32], merging[32];
    sl_json_writer w = {0};
    warn(t, tokens);
    if (json) {
        sl_json_begin_object(&w, NULL);
        sl_json_put_i64(&w, "vocab", tokens);
        sl_json_put_i64(&w, "merges", merges->count);
        sl_json_put_i64(&w, "bytes", merges->bytes);
        sl_json_put_i64(&w, "words", t->words.n_words);
        sl_json_put_i64(&w, "words_left_out", t->left_out);
        sl_json_put_f64(&w, "bytes_per_token", each);
        sl_json_put_f64(&w, "seconds", now - t->start_s);
        sl_json_end_object(&w);
        sl_text_append(&w.text, "\n", 1);
    } else {
        sl_text_printf(&w.text, "%s: %s tokens from %s distinct words, %.3f bytes a token; %s to count, %s to merge\n",
                       t->folder, sl_format_count(tokens, size), sl_format_count(t->words.n_words, words), each,
                       sl_format_seconds(t->counted_s - t->start_s, counting),
                       sl_format_seconds(now - t->counted_s, merging));
    }
    return sl_cli_write(&w.text, NULL);
}

static sl_status make(training *t, const sl_options *options, sl_cli_files *files)
{
    sl_merges merges;
    SL_TRY(sl_cli_files_find(files, options));
    SL_TRY(sl_pool_create((int) sl_options_i64(options, "threads"), &t->pool));
    SL_TRY(sl_alloc(&t->counts, sl_pool_threads(t->pool), sizeof *t->counts));
    SL_TRY(count_words(t, files));
    const sl_train_config config = {.merges = t->vocab - SL_TRAIN_BYTES - t->n_special,
                                    .least = t->least,
                                    .special = t->special,
                                    .n_special = t->n_special};
    SL_TRY(sl_bpe_train(&t->words, &config, &merges));
    sl_status status = sl_tokenizer_write(t->folder, t->special, t->n_special, &merges);
    if (status == SL_OK)
        status = print_summary(t, &merges, sl_options_flag(options, "json"));
    sl_merges_free(&merges);
    return status;
}

sl_status sl_cli_tokenize_train(const sl_options *options)
{
    training *t;
    sl_cli_files files = {.corpus = NULL};
    SL_TRY(sl_alloc(&t, 1, sizeof *t));
    t->start_s = sl_clock_s();
    sl_status status = read_options(t, options);
    if (status == SL_OK)
        status = make(t, options, &files);
    for (int i = 0; t->counts && i < sl_pool_threads(t->pool); i++)
        sl_word_counts_free(&t->counts[i]);
    sl_free(t->counts);
    sl_word_counts_free(&t->words);
    sl_pool_destroy(t->pool);
    sl_cli_files_close(&files);
    sl_free(t);
    return status;
}
