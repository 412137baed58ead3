/*
 * Finding a corpus's files. What a file is, is found from its content where that is certain (the magic of a shard, a NUL byte) and
 * from its name where it is not: JSON lines, tables and archives are valid bytes, but training on their syntax is hardly ever meant.
 * So such a file is refused when it is named and skipped in a folder. Source trees hold .json and .csv files that are text like
 * any other: in a folder they are taken, unless it holds nothing else.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/io_error.h"
#include "data/internal.h"
#include "data/stream.h"

enum { SNIFF_BYTES = 8192, MAX_DEPTH = 64, SAMPLE_PIECE = 4096, SAMPLE_PIECES = 16 };

typedef enum naming { NAMED_TEXT, NAMED_AMBIGUOUS, NAMED_JSON, NAMED_PARQUET, NAMED_RECORDS, NAMED_ARCHIVE } naming;

/* Of the path's first `length` characters, as below. */
static bool ends_with(const char *path, size_t length, const char *suffix)
{
    size_t n = strlen(suffix);
    return length > n && strncasecmp(path + length - n, suffix, n) == 0;
}

static naming naming_of(const char *path, size_t length)
{
    static const struct {
        const char *suffix;
        naming means;
    } table[] = {
        {".json", NAMED_AMBIGUOUS}, {".csv", NAMED_AMBIGUOUS},       {".tsv", NAMED_AMBIGUOUS},
        {".jsonl", NAMED_JSON},     {".ndjson", NAMED_JSON},         {".parquet", NAMED_PARQUET},
        {".arrow", NAMED_RECORDS},  {".feather", NAMED_RECORDS},     {".avro", NAMED_RECORDS},
        {".orc", NAMED_RECORDS},    {".tfrecord", NAMED_RECORDS},    {".npy", NAMED_RECORDS},
        {".npz", NAMED_RECORDS},    {".safetensors", NAMED_RECORDS}, {".gz", NAMED_ARCHIVE},
        {".tgz", NAMED_ARCHIVE},    {".zst", NAMED_ARCHIVE},         {".xz", NAMED_ARCHIVE},
        {".bz2", NAMED_ARCHIVE},    {".lz4", NAMED_ARCHIVE},         {".zip", NAMED_ARCHIVE},
        {".7z", NAMED_ARCHIVE},     {".tar", NAMED_ARCHIVE},
    };
    for (int64_t i = 0; i < SL_COUNT(table); i++)
        if (ends_with(path, length, table[i].suffix))
            return table[i].means;
    return NAMED_TEXT;
}

void sl_corpus_note_bytes(sl_corpus *corpus, size_t growing)
{
    size_t bytes = sizeof *corpus + (size_t) corpus->capacity * sizeof(sl_corpus_file) + growing +
                   corpus->listing_bytes + sl_region_bytes(corpus->region);
    corpus->most_bytes = SL_MAX(corpus->most_bytes, bytes);
}

static sl_status add_source(sl_corpus *corpus, const sl_corpus_file *found)
{
    if (corpus->n_sources == corpus->capacity) {
        int64_t capacity = corpus->capacity ? 2 * corpus->capacity : 16, old = corpus->capacity;
        SL_TRY(sl_grow(&corpus->sources, old, capacity, sizeof(sl_corpus_file)));
        corpus->capacity = capacity;
        sl_corpus_note_bytes(corpus, (size_t) old * sizeof(sl_corpus_file));
    }
    corpus->sources[corpus->n_sources++] = *found;
    return SL_OK;
}

/* At most `bytes` from `offset`; fewer at the end of the file, -1 with errno when they cannot be read. */
static ssize_t read_at(int fd, void *out, size_t bytes, int64_t offset)
{
    ssize_t got;
    do
        got = pread(fd, out, bytes, offset);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Pieces at places that depend on the size alone; of a small file they are all of it. */
static bool sample_file(int fd, int64_t bytes, uint64_t *sample)
{
    unsigned char piece[SAMPLE_PIECE];
    int64_t all = (int64_t) SAMPLE_PIECE * SAMPLE_PIECES;
    sl_hasher hasher;
    sl_hash_begin(&hasher, (uint64_t) bytes);
    for (int64_t i = 0; i < SAMPLE_PIECES; i++) {
        int64_t offset = bytes <= all ? i * SAMPLE_PIECE : (bytes - SAMPLE_PIECE) * i / (SAMPLE_PIECES - 1);
        ssize_t got = offset < bytes ? read_at(fd, piece, sizeof piece, offset) : 0;
        if (got < 0)
            return false;
        sl_hash_add(&hasher, piece, (size_t) got);
    }
    *sample = sl_hash_end(&hasher);
    return true;
}

/* What is known of a regular file before it is decided on. */
typedef struct sniffed {
    unsigned char head[SNIFF_BYTES];
    size_t length; /* of head */
    int64_t bytes; /* of the file */
    int64_t modified;
    uint64_t sample;
    bool is_file; /* false: anything else that a folder may hold, and nothing above is known */
} sniffed;

static sl_status sniff(const char *path, sniffed *s)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return sl_io_failed("read", path, errno, 0);
    s->is_file = S_ISREG(info.st_mode); /* asked before opening: opening a FIFO would wait */
    if (!s->is_file)
        return SL_OK;
    int fd = sl_io_open(path, O_RDONLY);
    if (fd < 0)
        return sl_io_failed("read", path, errno, 0);
    ssize_t got = read_at(fd, s->head, sizeof s->head, 0);
    bool sampled = got >= 0 && sample_file(fd, info.st_size, &s->sample);
    int error = errno;
    close(fd);
    if (!sampled)
        return sl_io_failed("read", path, error, 0);
    s->length = (size_t) got;
    s->bytes = info.st_size;
    s->modified = (int64_t) info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return SL_OK;
}

static sl_status refuse_packed(const char *path, naming means)
{
    if (means == NAMED_ARCHIVE)
        return sl_fail(SL_E_FORMAT, "%s is compressed or an archive: unpack it and give the text files or token shards",
                       path);
    return sl_fail(SL_E_FORMAT,
                   "%s holds records or a table, which are not read as training data: write their text into text "
                   "files (for a byte-level model) or tokenize it into token shards",
                   path);
}

/* The kind of a file that is to be tokenized; false: it is none. A .json file in a folder may be anything: it is decided on with the
 * folder. */
static bool is_records(const sl_corpus *corpus, const char *path, const sniffed *s, bool named, sl_token_kind *kind)
{
    const bool coded = sl_stream_codec(s->head, s->length) != NULL;
    const sl_data_format format = corpus->config.format;
    size_t length = strlen(path);
    if (!corpus->config.records || format == SL_DATA_BYTES || format == SL_DATA_SHARDS)
        return false;
    if (coded && (ends_with(path, length, ".gz") || ends_with(path, length, ".zst")))
        length = (size_t) (strrchr(path, '.') - path);
    naming means = naming_of(path, length);
    bool json = means == NAMED_JSON || (ends_with(path, length, ".json") && (named || coded));
    bool parquet = means == NAMED_PARQUET && !coded;
    if (format != SL_DATA_AUTO) {
        json = format == SL_DATA_JSON;
        parquet = format == SL_DATA_PARQUET;
    }
    if (!json && !parquet && !(coded && (means == NAMED_TEXT || format == SL_DATA_TEXT)))
        return false;
    *kind = json ? SL_TOKENS_JSON : parquet ? SL_TOKENS_PARQUET : SL_TOKENS_CODED_TEXT;
    return true;
}

/* `named`: by the user, so skipping it silently would be wrong. */
static sl_status add_file(sl_corpus *corpus, const char *path, const char *relative, bool named)
{
    sniffed s = {0};
    const bool plain = corpus->config.format == SL_DATA_BYTES || corpus->config.format == SL_DATA_TEXT;
    naming means = plain ? NAMED_TEXT : naming_of(path, strlen(path));
    sl_corpus_file found = {.path = path, .relative = relative, .kind = SL_TOKENS_TEXT};
    SL_TRY(sniff(path, &s));
    if (!s.is_file) {
        corpus->contents.skipped[SL_SKIP_SPECIAL]++;
        return named ? sl_fail(SL_E_IO, "%s is no regular file: give a text file, a token shard or a folder", path)
                     : SL_OK;
    }
    if (sl_shard_claims(s.head, s.length)) {
        sl_shard shard;
        SL_TRY(sl_shard_parse(path, s.head, s.length, s.bytes, &shard));
        found.kind = shard.kind, found.tokens = shard.tokens;
        if (corpus->document_token < 0)
            corpus->document_token = shard.document_token;
    } else if (s.bytes > 0 && is_records(corpus, path, &s, named, &found.kind)) {
        found.tokens = 0;
    } else if (corpus->config.format == SL_DATA_SHARDS) {
        corpus->contents.skipped[SL_SKIP_BESIDE_SHARDS]++;
        return named ? sl_fail(SL_E_FORMAT,
                               "%s is no token shard (its first int32 is not 20240520 or 20240801), but "
                               "--data-format asks for shards",
                               path)
                     : SL_OK;
    } else if (means == NAMED_RECORDS || means == NAMED_JSON || means == NAMED_PARQUET || means == NAMED_ARCHIVE ||
               (means == NAMED_AMBIGUOUS && named)) {
        corpus->contents.skipped[SL_SKIP_PACKED]++;
        return named ? refuse_packed(path, means) : SL_OK;
    } else if (s.length && memchr(s.head, 0, s.length) &&
               !(corpus->config.tokenize && corpus->config.format == SL_DATA_TEXT)) {
        corpus->contents.skipped[SL_SKIP_BINARY]++;
        return named ? sl_fail(SL_E_FORMAT,
                               "%s is neither text (it holds NUL bytes) nor a token shard (its first int32 is not "
                               "20240520 or 20240801): tokenize it first, with --data-format text if it is text",
                               path)
                     : SL_OK;
    } else if (s.bytes == 0) {
        corpus->contents.skipped[SL_SKIP_EMPTY]++;
        return SL_OK;
    } else {
        found.tokens = s.bytes + 1;
        found.ambiguous = means == NAMED_AMBIGUOUS;
    }
    found.bytes = s.bytes;
    found.sample = s.sample;
    found.modified = s.modified;
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

/* Links are not followed: they may lead anywhere, and in circles. */
static sl_status walk_entry(sl_corpus *corpus, const char *folder, const char *name, size_t root_length, int depth)
{
    const char *path;
    struct stat info;
    int64_t *skipped = corpus->contents.skipped;
    if (name[0] == '.') {
        skipped[SL_SKIP_HIDDEN]++;
        return SL_OK;
    }
    SL_TRY(sl_region_printf(corpus->region, &path, "%s/%s", folder, name));
    if (lstat(path, &info) < 0)
        return sl_io_failed("read", path, errno, 0);
    if (S_ISDIR(info.st_mode) && is_left_out(corpus, &info))
        skipped[SL_SKIP_RUN]++;
    else if (S_ISDIR(info.st_mode) && is_build_folder(name))
        skipped[SL_SKIP_BUILD]++;
    else if (S_ISDIR(info.st_mode))
        return walk(corpus, path, root_length, depth + 1);
    else if (S_ISLNK(info.st_mode))
        skipped[SL_SKIP_LINK]++;
    else
        return add_file(corpus, path, path + root_length + 1, false);
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
    for (int64_t i = 0; i < count && status == SL_OK; i++)
        status = walk_entry(corpus, folder, names[i], root_length, depth);
    sl_corpus_note_bytes(corpus, 0);
    corpus->listing_bytes -= bytes;
done:
    sl_region_destroy(listing);
    return status;
}

static bool is_shard(const sl_corpus_file *file)
{
    return file->kind == SL_TOKENS_U16 || file->kind == SL_TOKENS_U32;
}

/* Where a folder holds shards, the text beside them is their README. */
static void drop_text_beside_shards(sl_corpus *corpus, int64_t first)
{
    bool shards = false;
    for (int64_t i = first; i < corpus->n_sources; i++)
        shards |= is_shard(&corpus->sources[i]);
    if (!shards)
        return;
    int64_t kept = first;
    for (int64_t i = first; i < corpus->n_sources; i++)
        if (is_shard(&corpus->sources[i]))
            corpus->sources[kept++] = corpus->sources[i];
    corpus->contents.skipped[SL_SKIP_BESIDE_SHARDS] += corpus->n_sources - kept;
    corpus->n_sources = kept;
}

static bool is_text(const sl_corpus_file *file)
{
    return file->kind == SL_TOKENS_TEXT || file->kind == SL_TOKENS_CODED_TEXT;
}

/* A README beside records, or a few records in a tree of text: what has more bytes is the data. */
static void drop_lesser_kind(sl_corpus *corpus, int64_t first)
{
    int64_t text = 0, records = 0, kept = first;
    for (int64_t i = first; i < corpus->n_sources; i++)
        *(is_text(&corpus->sources[i]) ? &text : &records) += corpus->sources[i].bytes;
    if (text == 0 || records == 0)
        return;
    for (int64_t i = first; i < corpus->n_sources; i++)
        if (is_text(&corpus->sources[i]) == (text > records))
            corpus->sources[kept++] = corpus->sources[i];
    corpus->contents.skipped[text > records ? SL_SKIP_PACKED : SL_SKIP_BESIDE_RECORDS] += corpus->n_sources - kept;
    corpus->n_sources = kept;
}

/* A folder of .json files alone is one of records. */
static bool take_json(sl_corpus *corpus, int64_t first)
{
    if (!corpus->config.records)
        return false;
    for (int64_t i = first; i < corpus->n_sources; i++)
        if (!ends_with(corpus->sources[i].path, strlen(corpus->sources[i].path), ".json"))
            return false;
    for (int64_t i = first; i < corpus->n_sources; i++) {
        corpus->sources[i].kind = SL_TOKENS_JSON;
        corpus->sources[i].tokens = 0;
    }
    return corpus->n_sources > first;
}

static sl_status check_folder(sl_corpus *corpus, const char *path, int64_t first)
{
    bool plain = false;
    for (int64_t i = first; i < corpus->n_sources; i++)
        plain |= !corpus->sources[i].ambiguous;
    if (plain || take_json(corpus, first))
        return SL_OK;
    if (corpus->n_sources > first)
        return refuse_packed(corpus->sources[first].path, NAMED_AMBIGUOUS);
    char skipped[256];
    sl_corpus_skipped_text(&corpus->contents, skipped, sizeof skipped);
    return sl_fail(SL_E_IO, "%s holds no text file and no token shard%s%s: give a folder of them", path,
                   skipped[0] ? "; skipped: " : "", skipped);
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
    if (corpus->config.records)
        drop_lesser_kind(corpus, first);
    return check_folder(corpus, path, first);
}

/* A path that exists as it stands may hold commas itself. */
sl_status sl_corpus_find(sl_corpus *corpus, const char *paths)
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
