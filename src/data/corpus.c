/*
 * The stream is the files one behind the other; file i covers tokens [start[i], start[i] + tokens[i]):
 *
 *     | 0 | bytes of a.txt | 0 | bytes of b/c.txt | tokens of d.bin ...
 *
 * A read finds the first file by bisection and goes on from there with pread(2). Not mapped: a mapped file that another
 * process truncates kills the run with SIGBUS, a short read is a sentence.
 */
#include "data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/io_error.h"
#include "data/internal.h"

enum { TEXT_SEPARATOR = 0, PIECE_TOKENS = 4096, BYTE_VALUES = 256 };

/* ---- opening ---- */

/* The whole stream: where each file begins in it, and what tells this data from other data. */
static void add_up(sl_corpus *corpus)
{
    sl_hasher names, samples;
    sl_hash_begin(&names, 0);
    sl_hash_begin(&samples, 0);
    for (int64_t i = 0; i < corpus->n_sources; i++) {
        sl_corpus_file *s = &corpus->sources[i];
        s->start = corpus->contents.tokens;
        corpus->contents.tokens += s->tokens;
        corpus->contents.files[s->kind]++;
        sl_hash_add(&names, s->relative, strlen(s->relative) + 1);
        sl_hash_add(&names, &s->bytes, sizeof s->bytes);
        sl_hash_add(&names, &s->kind, sizeof s->kind);
        sl_hash_add(&samples, &s->sample, sizeof s->sample);
    }
    corpus->fingerprint = sl_hash_end(&names);
    corpus->sample = sl_hash_end(&samples);
    sl_corpus_note_bytes(corpus, 0);
}

static const char *first_path(const sl_corpus *corpus, bool text)
{
    for (int64_t i = 0; i < corpus->n_sources; i++)
        if ((corpus->sources[i].kind == SL_TOKENS_TEXT) == text)
            return corpus->sources[i].path;
    return "";
}

void sl_corpus_set_packing(sl_corpus *corpus, const struct sl_packing_counts *counts)
{
    corpus->contents.packing = counts;
}

bool sl_corpus_holds_records(const sl_corpus *corpus)
{
    const int64_t *files = corpus->contents.files;
    return files[SL_TOKENS_JSON] || files[SL_TOKENS_PARQUET] || files[SL_TOKENS_CODED_TEXT] ||
           (corpus->config.tokenize && files[SL_TOKENS_TEXT]);
}

static sl_status check_records(const sl_corpus *corpus)
{
    const int64_t *files = corpus->contents.files;
    if (files[SL_TOKENS_U16] + files[SL_TOKENS_U32] == 0)
        return SL_OK;
    return sl_fail(SL_E_USAGE,
                   "%s mixes token shards and files that are tokenized: give one kind, or --data-format shards",
                   corpus->config.paths);
}

/* Whether the data is of one kind, and of the model's kind. */
static sl_status check_kind(const sl_corpus *corpus)
{
    const char *paths = corpus->config.paths;
    int64_t vocab = corpus->config.vocab, text = corpus->contents.files[SL_TOKENS_TEXT];
    if (sl_corpus_holds_records(corpus))
        return check_records(corpus);
    if (corpus->contents.tokens == 0)
        return sl_fail(SL_E_FORMAT, "%s holds no tokens: give files with something in them", paths);
    if (text && text < corpus->n_sources)
        return sl_fail(SL_E_USAGE,
                       "the data mixes text (%s) and token shards (%s): give one kind, text for a "
                       "byte-level model, shards for one with a tokenizer",
                       first_path(corpus, true), first_path(corpus, false));
    if (text && vocab < BYTE_VALUES)
        return sl_fail(SL_E_USAGE,
                       "%s is text, read as bytes, which needs a vocabulary of at least 256; the model's has %" PRId64,
                       paths, vocab);
    if (text && vocab > 2 * BYTE_VALUES && corpus->config.format != SL_DATA_BYTES)
        return sl_fail(SL_E_USAGE,
                       "%s is text, read as bytes, which suits vocabularies of 256 to 512 tokens, but the model's has "
                       "%" PRId64 ": tokenize it into token shards, or force bytes with --data-format bytes",
                       paths, vocab);
    return SL_OK;
}

sl_status sl_corpus_open(const sl_corpus_config *config, sl_corpus **out)
{
    sl_corpus *corpus;
    sl_status status;
    SL_TRY(sl_alloc(&corpus, 1, sizeof *corpus));
    for (int i = 0; i < SL_CORPUS_OPEN_FILES; i++)
        corpus->files[i] = (sl_open_file){.source = -1, .fd = -1};
    corpus->config = *config;
    corpus->document_token = config->document_token;
    if (config->leave_out && stat(config->leave_out, &corpus->left_out) < 0)
        corpus->left_out = (struct stat){0}; /* not there yet, so nothing of it is read */
    SL_TRY_GOTO(sl_region_create(&corpus->region), fail);
    SL_TRY_GOTO(sl_corpus_find(corpus, config->paths), fail);
    add_up(corpus);
    SL_TRY_GOTO(check_kind(corpus), fail);
    if (corpus->contents.files[SL_TOKENS_TEXT] && corpus->document_token < 0)
        corpus->document_token = TEXT_SEPARATOR;
    *out = corpus;
    return SL_OK;
fail:
    sl_corpus_close(corpus);
    return status;
}

void sl_corpus_close(sl_corpus *corpus)
{
    if (!corpus)
        return;
    for (int i = 0; i < SL_CORPUS_OPEN_FILES; i++)
        if (corpus->files[i].fd >= 0)
            close(corpus->files[i].fd);
    sl_reader_close(corpus->bytes);
    sl_free(corpus->sources);
    sl_region_destroy(corpus->region);
    sl_free(corpus);
}

const sl_corpus_contents *sl_corpus_contents_of(const sl_corpus *corpus)
{
    return &corpus->contents;
}

int64_t sl_corpus_tokens(const sl_corpus *corpus)
{
    return corpus->contents.tokens;
}

int64_t sl_corpus_document_token(const sl_corpus *corpus)
{
    return corpus->document_token;
}

size_t sl_corpus_bytes(const sl_corpus *corpus)
{
    return corpus->most_bytes;
}

uint64_t sl_corpus_fingerprint(const sl_corpus *corpus)
{
    return corpus->fingerprint;
}

uint64_t sl_corpus_sample(const sl_corpus *corpus)
{
    return corpus->sample;
}

/* ---- reading ---- */

/* An open descriptor of the source; the one unused for longest makes room. */
static sl_status open_source(sl_corpus *corpus, int64_t index, int *fd)
{
    sl_open_file *oldest = &corpus->files[0];
    for (int i = 0; i < SL_CORPUS_OPEN_FILES; i++) {
        sl_open_file *file = &corpus->files[i];
        if (file->source == index) {
            file->used = ++corpus->clock;
            *fd = file->fd;
            return SL_OK;
        }
        if (file->used < oldest->used)
            oldest = file;
    }
    if (oldest->fd >= 0)
        close(oldest->fd);
    *oldest = (sl_open_file){.source = -1, .fd = -1};
    int opened = sl_io_open(corpus->sources[index].path, O_RDONLY);
    if (opened < 0)
        return sl_io_failed("read", corpus->sources[index].path, errno, 0);
    *oldest = (sl_open_file){index, opened, ++corpus->clock};
    *fd = opened;
    return SL_OK;
}

static sl_status read_bytes(const sl_corpus_file *s, int fd, int64_t offset, void *out, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *) out + done, bytes - done, offset + (int64_t) done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sl_io_failed("read", s->path, errno, 0);
        if (got == 0)
            return sl_fail(SL_E_IO,
                           "%s ends at byte %" PRId64 ": it was cut while it was in use, put it back and resume",
                           s->path, offset + (int64_t) done);
        done += (size_t) got;
    }
    return SL_OK;
}

static sl_status read_shard(const sl_corpus *corpus, const sl_corpus_file *s, int fd, int64_t at, int64_t count,
                            int32_t *out)
{
    unsigned char piece[PIECE_TOKENS * 4];
    int64_t width = s->kind == SL_TOKENS_U16 ? 2 : 4;
    SL_TRY(read_bytes(s, fd, SL_SHARD_HEADER_BYTES + at * width, piece, (size_t) (count * width)));
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *b = piece + i * width;
        uint32_t token = (uint32_t) b[0] | (uint32_t) b[1] << 8;
        if (width == 4)
            token |= (uint32_t) b[2] << 16 | (uint32_t) b[3] << 24;
        if (token >= (uint64_t) corpus->config.vocab)
            return sl_fail(SL_E_FORMAT,
                           "%s: token %" PRId64 " (at byte %" PRId64 ") is %" PRIu32
                           ", but the model's vocabulary has %" PRId64
                           " tokens: the data was made for another tokenizer",
                           s->path, at + i, SL_SHARD_HEADER_BYTES + (at + i) * width, token, corpus->config.vocab);
        out[i] = (int32_t) token;
    }
    return SL_OK;
}

/* Token 0 of a text file is the separator, token i its byte i - 1. */
static sl_status read_text(const sl_corpus_file *s, int fd, int64_t at, int64_t count, int32_t *out)
{
    unsigned char piece[PIECE_TOKENS];
    if (at == 0) {
        *out++ = TEXT_SEPARATOR;
        at = 1;
        count--;
    }
    SL_TRY(read_bytes(s, fd, at - 1, piece, (size_t) count));
    for (int64_t i = 0; i < count; i++)
        out[i] = piece[i];
    return SL_OK;
}

sl_status sl_corpus_read(sl_corpus *corpus, int64_t first, int64_t count, int32_t *out)
{
    SL_ASSERT(first >= 0 && count >= 0 && first <= corpus->contents.tokens - count);
    int64_t low = 0, high = corpus->n_sources - 1; /* the last source that starts at or before `first` */
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (corpus->sources[middle].start <= first)
            low = middle;
        else
            high = middle - 1;
    }
    for (int64_t index = low; count > 0; index++) {
        const sl_corpus_file *s = &corpus->sources[index];
        int64_t at = first - s->start;
        while (count > 0 && at < s->tokens) {
            int fd = -1;
            int64_t n = SL_MIN(SL_MIN(count, s->tokens - at), (int64_t) PIECE_TOKENS);
            SL_TRY(open_source(corpus, index, &fd));
            if (s->kind == SL_TOKENS_TEXT)
                SL_TRY(read_text(s, fd, at, n, out));
            else
                SL_TRY(read_shard(corpus, s, fd, at, n, out));
            at += n, first += n, count -= n, out += n;
        }
    }
    return SL_OK;
}

/* ---- bytes of text ---- */

const char *sl_corpus_text_unknown(const sl_corpus *corpus)
{
    if (corpus->contents.cache)
        return corpus->contents.cache->text_bytes < 0 ? "the tokenizer drops or changes some text" : NULL;
    return corpus->contents.files[SL_TOKENS_TEXT] ? NULL : "the data holds tokens, not the text that they were made of";
}

/* Of text as bytes every token is one, but for the separator. */
static int64_t count_plain(const int32_t *targets, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += targets[i] >= 0 && targets[i] != TEXT_SEPARATOR;
    return bytes;
}

sl_status sl_corpus_text_bytes(sl_corpus *corpus, int64_t first, int64_t count, const int32_t *targets, int64_t *bytes)
{
    unsigned char piece[PIECE_TOKENS];
    *bytes = corpus->bytes ? 0 : count_plain(targets, count);
    for (int64_t done = 0; corpus->bytes && done < count;) {
        int64_t n = SL_MIN(count - done, (int64_t) PIECE_TOKENS);
        SL_TRY(sl_reader_read(corpus->bytes, first + done, piece, (size_t) n));
        for (int64_t i = 0; i < n; i++)
            *bytes += targets[done + i] >= 0 ? piece[i] : 0;
        done += n;
    }
    return SL_OK;
}
