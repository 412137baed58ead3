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
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/io_error.h"
#include "data/shard.h"

enum { SNIFF_BYTES = 8192, MAX_DEPTH = 64, OPEN_FILES = 8, TEXT_SEPARATOR = 0, PIECE_TOKENS = 4096 };

typedef struct source {
    const char *path;
    const char *relative; /* what the fingerprint knows it by */
    int64_t start, tokens, bytes;
    sl_token_kind kind;
} source;

typedef struct open_file {
    int64_t source; /* -1: free */
    int fd;
    int64_t used; /* when last, for eviction */
} open_file;

struct sl_corpus {
    sl_region *region; /* names */
    source *sources;
    int64_t n_sources, capacity;
    int64_t tokens, vocab, document_token;
    uint64_t fingerprint;
    struct stat left_out; /* a folder, or zero */
    size_t listing_bytes; /* of the folders being walked */
    size_t most_bytes;    /* held so far */
    open_file files[OPEN_FILES];
    int64_t clock;
};

/* ---- finding files ---- */

/* `growing`: bytes that are there twice for a moment. */
static void note_bytes(sl_corpus *corpus, size_t growing)
{
    size_t bytes = sizeof *corpus + (size_t) corpus->capacity * sizeof(source) + growing + corpus->listing_bytes +
                   sl_region_bytes(corpus->region);
    corpus->most_bytes = SL_MAX(corpus->most_bytes, bytes);
}

static sl_status add_source(sl_corpus *corpus, const source *found)
{
    if (corpus->n_sources == corpus->capacity) {
        int64_t capacity = corpus->capacity ? 2 * corpus->capacity : 16, old = corpus->capacity;
        SL_TRY(sl_grow(&corpus->sources, old, capacity, sizeof(source)));
        corpus->capacity = capacity;
        note_bytes(corpus, (size_t) old * sizeof(source));
    }
    corpus->sources[corpus->n_sources++] = *found;
    return SL_OK;
}

/* The first bytes of a regular file; *is_file false for anything else that a folder may hold. */
static sl_status sniff(const char *path, unsigned char *head, size_t *length, int64_t *bytes, bool *is_file)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return sl_io_failed("read", path, errno, 0);
    *is_file = S_ISREG(info.st_mode); /* asked before opening: opening a FIFO would wait */
    if (!*is_file)
        return SL_OK;
    int fd = sl_io_open(path, O_RDONLY);
    if (fd < 0)
        return sl_io_failed("read", path, errno, 0);
    ssize_t got;
    do
        got = pread(fd, head, SNIFF_BYTES, 0);
    while (got < 0 && errno == EINTR);
    int error = errno;
    close(fd);
    if (got < 0)
        return sl_io_failed("read", path, error, 0);
    *length = (size_t) got;
    *bytes = info.st_size;
    return SL_OK;
}

/* `named`: by the user, so leaving it out silently would be wrong. */
static sl_status add_file(sl_corpus *corpus, const char *path, const char *relative, bool named)
{
    unsigned char head[SNIFF_BYTES];
    size_t length = 0;
    int64_t bytes = 0;
    bool is_file = false;
    source found = {.path = path, .relative = relative, .kind = SL_TOKENS_TEXT};
    SL_TRY(sniff(path, head, &length, &bytes, &is_file));
    if (!is_file)
        return named ? sl_fail(SL_E_IO, "%s is no regular file: give a text file, a token shard or a folder", path)
                     : SL_OK;
    if (sl_shard_claims(head, length)) {
        sl_shard shard;
        SL_TRY(sl_shard_parse(path, head, length, bytes, &shard));
        found.kind = shard.kind, found.tokens = shard.tokens;
        if (corpus->document_token < 0)
            corpus->document_token = shard.document_token;
    } else if (length && memchr(head, 0, length)) {
        return named ? sl_fail(SL_E_FORMAT,
                               "%s is neither text (it holds NUL bytes) nor a token shard (its first int32 is not "
                               "20240520 or "
                               "20240801): tokenize it first",
                               path)
                     : SL_OK;
    } else {
        found.tokens = bytes + 1;
        if (bytes == 0)
            return SL_OK;
    }
    found.bytes = bytes;
    return add_source(corpus, &found);
}

static bool is_build_folder(const char *name)
{
    static const char *const names[] = {"build", "node_modules", "__pycache__", "CMakeFiles", "venv"};
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, "build-", 6) == 0;
}

static bool is_left_out(const sl_corpus *corpus, const struct stat *folder)
{
    return folder->st_dev == corpus->left_out.st_dev && folder->st_ino == corpus->left_out.st_ino;
}

static sl_status walk(sl_corpus *corpus, const char *folder, size_t root_length, int depth);

static sl_status walk_entries(sl_corpus *corpus, const char *folder, size_t root_length, int depth,
                              const char *const *names, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const char *path;
        struct stat info;
        if (names[i][0] == '.')
            continue;
        SL_TRY(sl_region_printf(corpus->region, &path, "%s/%s", folder, names[i]));
        if (lstat(path, &info) < 0)
            return sl_io_failed("read", path, errno, 0);
        if (S_ISDIR(info.st_mode)) {
            if (!is_build_folder(names[i]) && !is_left_out(corpus, &info))
                SL_TRY(walk(corpus, path, root_length, depth + 1));
        } else if (S_ISREG(info.st_mode)) { /* links are not followed: they may lead anywhere, and in circles */
            SL_TRY(add_file(corpus, path, path + root_length + 1, false));
        }
    }
    return SL_OK;
}

/* A folder's list goes when the folder is done: all of them together may be as large as what is kept. */
static sl_status walk(sl_corpus *corpus, const char *folder, size_t root_length, int depth)
{
    sl_region *listing = NULL;
    const char **names;
    int64_t count;
    sl_status status;
    if (depth > MAX_DEPTH)
        return sl_fail(SL_E_IO, "%s lies more than %d folders deep: give a folder nearer to the data", folder,
                       MAX_DEPTH);
    SL_TRY(sl_region_create(&listing));
    SL_TRY_GOTO(sl_dir_list(listing, folder, &names, &count), done);
    size_t bytes = sl_region_bytes(listing);
    corpus->listing_bytes += bytes;
    status = walk_entries(corpus, folder, root_length, depth, names, count);
    note_bytes(corpus, 0);
    corpus->listing_bytes -= bytes;
done:
    sl_region_destroy(listing);
    return status;
}

/* Where a folder holds shards, the text beside them is their README. */
static void drop_text_beside_shards(sl_corpus *corpus, int64_t first)
{
    bool shards = false;
    for (int64_t i = first; i < corpus->n_sources; i++)
        shards |= corpus->sources[i].kind != SL_TOKENS_TEXT;
    if (!shards)
        return;
    int64_t kept = first;
    for (int64_t i = first; i < corpus->n_sources; i++)
        if (corpus->sources[i].kind != SL_TOKENS_TEXT)
            corpus->sources[kept++] = corpus->sources[i];
    corpus->n_sources = kept;
}

static sl_status add_path(sl_corpus *corpus, const char *path)
{
    int64_t first = corpus->n_sources;
    struct stat info;
    if (!sl_dir_exists(path)) {
        const char *name = strrchr(path, '/');
        return add_file(corpus, path, name ? name + 1 : path, true);
    }
    if (stat(path, &info) == 0 && is_left_out(corpus, &info))
        return sl_fail(SL_E_USAGE,
                       "%s is both the data and the folder of the run, whose files would be read as data: give "
                       "another --out, which may lie inside the data",
                       path);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    const char *folder;
    SL_TRY(sl_region_printf(corpus->region, &folder, "%.*s", (int) length, path));
    SL_TRY(walk(corpus, folder, length, 0));
    drop_text_beside_shards(corpus, first);
    if (corpus->n_sources == first)
        return sl_fail(
            SL_E_IO,
            "%s holds no text file and no token shard (hidden files, build folders, links and binary files are left "
            "out)",
            path);
    return SL_OK;
}

/* A path that exists as it stands may hold commas itself. */
static sl_status add_paths(sl_corpus *corpus, const char *paths)
{
    struct stat info;
    if (!strchr(paths, ',') || stat(paths, &info) == 0)
        return add_path(corpus, paths);
    while (*paths) {
        const char *path;
        size_t length = strcspn(paths, ",");
        SL_TRY(sl_region_printf(corpus->region, &path, "%.*s", (int) length, paths));
        if (length)
            SL_TRY(add_path(corpus, path));
        paths += length + (paths[length] == ',');
    }
    return SL_OK;
}

/* ---- opening ---- */

static sl_status settle(sl_corpus *corpus, const char *paths)
{
    bool text = false;
    sl_hasher hasher;
    sl_hash_begin(&hasher, 0);
    for (int64_t i = 0; i < corpus->n_sources; i++) {
        source *s = &corpus->sources[i];
        s->start = corpus->tokens;
        corpus->tokens += s->tokens;
        text |= s->kind == SL_TOKENS_TEXT;
        sl_hash_add(&hasher, s->relative, strlen(s->relative) + 1);
        sl_hash_add(&hasher, &s->bytes, sizeof s->bytes);
        sl_hash_add(&hasher, &s->kind, sizeof s->kind);
    }
    note_bytes(corpus, 0);
    if (corpus->tokens == 0)
        return sl_fail(SL_E_FORMAT, "%s holds no tokens: give files with something in them", paths);
    if (text && corpus->vocab < 256)
        return sl_fail(SL_E_USAGE,
                       "%s is text, read as bytes, which needs a vocabulary of at least 256; the model's has %" PRId64,
                       paths, corpus->vocab);
    if (text && corpus->document_token < 0)
        corpus->document_token = TEXT_SEPARATOR;
    corpus->fingerprint = sl_hash_end(&hasher);
    return SL_OK;
}

sl_status sl_corpus_open(const char *paths, const char *leave_out, int64_t vocab, int64_t document_token,
                         sl_corpus **out)
{
    sl_corpus *corpus;
    sl_status status;
    SL_TRY(sl_alloc(&corpus, 1, sizeof *corpus));
    for (int i = 0; i < OPEN_FILES; i++)
        corpus->files[i] = (open_file){.source = -1, .fd = -1};
    corpus->vocab = vocab;
    corpus->document_token = document_token;
    if (leave_out && stat(leave_out, &corpus->left_out) < 0)
        corpus->left_out = (struct stat){0}; /* not there yet, so nothing of it is read */
    SL_TRY_GOTO(sl_region_create(&corpus->region), fail);
    SL_TRY_GOTO(add_paths(corpus, paths), fail);
    SL_TRY_GOTO(settle(corpus, paths), fail);
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
    for (int i = 0; i < OPEN_FILES; i++)
        if (corpus->files[i].fd >= 0)
            close(corpus->files[i].fd);
    sl_free(corpus->sources);
    sl_region_destroy(corpus->region);
    sl_free(corpus);
}

int64_t sl_corpus_tokens(const sl_corpus *corpus)
{
    return corpus->tokens;
}

int64_t sl_corpus_files(const sl_corpus *corpus)
{
    return corpus->n_sources;
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

/* ---- reading ---- */

/* An open descriptor of the source; the one unused for longest makes room. */
static sl_status open_source(sl_corpus *corpus, int64_t index, int *fd)
{
    open_file *oldest = &corpus->files[0];
    for (int i = 0; i < OPEN_FILES; i++) {
        open_file *file = &corpus->files[i];
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
    *oldest = (open_file){.source = -1, .fd = -1};
    int opened = sl_io_open(corpus->sources[index].path, O_RDONLY);
    if (opened < 0)
        return sl_io_failed("read", corpus->sources[index].path, errno, 0);
    *oldest = (open_file){index, opened, ++corpus->clock};
    *fd = opened;
    return SL_OK;
}

static sl_status read_bytes(const source *s, int fd, int64_t offset, void *out, size_t bytes)
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

static sl_status read_shard(const sl_corpus *corpus, const source *s, int fd, int64_t at, int64_t count, int32_t *out)
{
    unsigned char piece[PIECE_TOKENS * 4];
    int64_t width = s->kind == SL_TOKENS_U16 ? 2 : 4;
    SL_TRY(read_bytes(s, fd, SL_SHARD_HEADER_BYTES + at * width, piece, (size_t) (count * width)));
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *b = piece + i * width;
        uint32_t token = (uint32_t) b[0] | (uint32_t) b[1] << 8;
        if (width == 4)
            token |= (uint32_t) b[2] << 16 | (uint32_t) b[3] << 24;
        if (token >= (uint64_t) corpus->vocab)
            return sl_fail(SL_E_FORMAT,
                           "%s: token %" PRId64 " (at byte %" PRId64 ") is %" PRIu32
                           ", but the model's vocabulary has %" PRId64
                           " tokens: the data was made for another tokenizer",
                           s->path, at + i, SL_SHARD_HEADER_BYTES + (at + i) * width, token, corpus->vocab);
        out[i] = (int32_t) token;
    }
    return SL_OK;
}

/* Token 0 of a text file is the separator, token i its byte i - 1. */
static sl_status read_text(const source *s, int fd, int64_t at, int64_t count, int32_t *out)
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
    SL_ASSERT(first >= 0 && count >= 0 && first <= corpus->tokens - count);
    int64_t low = 0, high = corpus->n_sources - 1; /* the last source that starts at or before `first` */
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (corpus->sources[middle].start <= first)
            low = middle;
        else
            high = middle - 1;
    }
    for (int64_t index = low; count > 0; index++) {
        const source *s = &corpus->sources[index];
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
