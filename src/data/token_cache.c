/* Finding a cache, or making it under a lock. */
#include "data/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/io_error.h"
#include "core/log.h"
#include "data/internal.h"

enum { CACHE_VERSION = 2, MANIFEST_LIMIT = 1 << 16 };

static const char *const kind_keys[SL_RECORD_KINDS] = {"texts", "completions", "chats"};
static const char *const skip_keys[SL_RECORD_SKIPS] = {"empty",    "malformed", "no_known_field",
                                                       "too_long", "refused",   "no_target"};
static const char *const skip_names[SL_RECORD_SKIPS] = {"empty",    "malformed", "without a known field",
                                                        "too long", "refused",   "with nothing to learn"};

/* ---- the key ---- */

static uint64_t key_of(const sl_token_cache_config *c)
{
    const sl_corpus *files = c->files;
    int64_t parts[] = {CACHE_VERSION, (int64_t) c->encoding->fingerprint, c->encoding->document_token,
                       (int64_t) sl_corpus_fingerprint(files), (int64_t) sl_corpus_sample(files)};
    sl_hasher hasher;
    sl_hash_begin(&hasher, 0);
    sl_hash_add(&hasher, parts, sizeof parts);
    if (c->field)
        sl_hash_add(&hasher, c->field, strlen(c->field) + 1);
    for (int64_t i = 0; i < files->n_sources; i++)
        sl_hash_add(&hasher, &files->sources[i].modified, sizeof files->sources[i].modified);
    return sl_hash_end(&hasher);
}

static sl_status root_of(const sl_token_cache_config *c, char out[900])
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length;
    if (c->root)
        length = snprintf(out, 900, "%s", c->root);
    else if (base && base[0])
        length = snprintf(out, 900, "%s/sluice/tokens", base);
    else if (home && home[0])
        length = snprintf(out, 900, "%s/.cache/sluice/tokens", home);
    else
        return sl_fail(SL_E_USAGE, "tokens are kept in a cache, but neither XDG_CACHE_HOME nor HOME says where: give "
                                   "--cache DIR");
    if (length >= 900)
        return sl_fail(SL_E_USAGE, "the cache's path has %d bytes: give a --cache of at most 899", length);
    return SL_OK;
}

/* ---- the manifest ---- */

static sl_status write_manifest(const sl_token_cache *cache, const char *folder)
{
    char path[1200];
    sl_json_writer w = {.indent = true};
    snprintf(path, sizeof path, "%s/cache.json", folder);
    sl_json_begin_object(&w, NULL);
    sl_json_put_i64(&w, "version", CACHE_VERSION);
    sl_json_put_i64(&w, "document_token", cache->document_token);
    sl_token_cache_put(cache, &w);
    sl_json_put_string(&w, "first_skipped", cache->records.first);
    sl_json_end_object(&w);
    sl_status status = sl_text_status(&w.text);
    if (status == SL_OK)
        status = sl_file_write_atomic(path, w.text.data, w.text.length);
    sl_text_free(&w.text);
    return status;
}

static sl_status read_counts(const char *path, const sl_json *root, sl_token_cache *cache)
{
    const struct {
        const char *key;
        int64_t *to;
    } members[] = {{"document_token", &cache->document_token},
                   {"records", &cache->records.records},
                   {"documents", &cache->documents},
                   {"made_tokens", &cache->tokens},
                   {"counted", &cache->counted},
                   {"replaced", &cache->records.replaced}};
    const char *first;
    for (int64_t i = 0; i < SL_COUNT(members); i++)
        SL_TRY(sl_json_i64(path, root, members[i].key, members[i].to));
    SL_TRY(sl_json_i64_or(path, root, "text_bytes", -1, &cache->text_bytes));
    for (int i = 0; i < SL_RECORD_KINDS; i++)
        SL_TRY(sl_json_i64_or(path, root, kind_keys[i], 0, &cache->records.kinds[i]));
    for (int i = 0; i < SL_RECORD_SKIPS; i++)
        SL_TRY(sl_json_i64_or(path, sl_json_get(root, "left_out"), skip_keys[i], 0, &cache->records.skipped[i]));
    SL_TRY(sl_json_string_or(path, root, "first_skipped", "", &first));
    snprintf(cache->records.first, sizeof cache->records.first, "%s", first);
    return SL_OK;
}

static sl_status read_manifest(sl_token_cache *cache)
{
    char path[1200], *text = NULL;
    size_t length;
    const sl_json *root;
    sl_region *region = NULL;
    sl_status status;
    snprintf(path, sizeof path, "%s/cache.json", cache->folder);
    SL_TRY_GOTO(sl_region_create(&region), done);
    SL_TRY_GOTO(sl_file_read_all(path, MANIFEST_LIMIT, &text, &length), done);
    SL_TRY_GOTO(sl_json_parse(region, path, text, length, &root), done);
    status = read_counts(path, root, cache);
done:
    sl_free(text);
    sl_region_destroy(region);
    return status == SL_OK ? SL_OK : sl_fail_at(status, "this cache cannot be used, remove %s", cache->folder);
}

/* ---- making it ---- */

static sl_status check_filled(const sl_token_cache_config *c, const sl_token_cache *cache)
{
    if (cache->tokens)
        return SL_OK;
    char counts[400];
    sl_token_cache_text(cache, counts, sizeof counts);
    return sl_fail(SL_E_FORMAT, "%s holds no record that can be used (%s)%s%s", c->files->config.paths, counts,
                   cache->records.first[0] ? ": " : "", cache->records.first);
}

/* Under the lock: another run may have made it meanwhile. */
static sl_status make(const sl_token_cache_config *c, sl_token_cache *cache)
{
    char part[1100];
    sl_status status;
    if (sl_dir_exists(cache->folder)) {
        cache->reused = true;
        return read_manifest(cache);
    }
    snprintf(part, sizeof part, "%s.part", cache->folder);
    if (sl_dir_exists(part))
        SL_TRY(sl_dir_remove(part));
    SL_TRY(sl_dir_create(part));
    cache->document_token = c->encoding->document_token;
    SL_TRY_GOTO(sl_token_cache_fill(c, part, cache), fail);
    SL_TRY_GOTO(check_filled(c, cache), fail);
    SL_TRY_GOTO(write_manifest(cache, part), fail);
    SL_TRY_GOTO(sl_rename_durable(part, cache->folder), fail);
    return SL_OK;
fail:;
    char message[800];
    snprintf(message, sizeof message, "%s", sl_error_message());
    if (sl_dir_remove(part) != SL_OK)
        sl_info("%s is left behind: %s", part, sl_error_message());
    return sl_fail(status, "%s", message);
}

static sl_status lock_and_make(const sl_token_cache_config *c, const char *root, sl_token_cache *cache)
{
    char path[1100];
    SL_TRY(sl_dir_create(root));
    snprintf(path, sizeof path, "%s.lock", cache->folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return sl_io_failed("write", path, errno, 0);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        sl_info("another run tokenizes the same data: waiting for it");
        while (flock(fd, LOCK_EX) < 0 && errno == EINTR) {}
    }
    sl_status status = make(c, cache);
    close(fd);
    return status;
}

sl_status sl_token_cache_open(const sl_token_cache_config *c, sl_token_cache *out)
{
    char root[900];
    sl_token_cache cache = {.reused = true};
    SL_TRY(root_of(c, root));
    snprintf(cache.folder, sizeof cache.folder, "%s/%016" PRIx64, root, key_of(c));
    if (sl_dir_exists(cache.folder)) {
        SL_TRY(read_manifest(&cache));
    } else {
        cache.reused = false;
        SL_TRY(lock_and_make(c, root, &cache));
    }
    *out = cache;
    return SL_OK;
}

/* ---- for people and programs ---- */

void sl_token_cache_text(const sl_token_cache *cache, char *out, size_t size)
{
    const sl_record_counts *c = &cache->records;
    char number[32];
    size_t length =
        (size_t) snprintf(out, size, "%s record%s", sl_format_count(c->records, number), c->records == 1 ? "" : "s");
    for (int i = 0; i < SL_RECORD_KINDS && length < size; i++)
        if (c->kinds[i])
            length += (size_t) snprintf(out + length, size - length, ", %s %s", sl_format_count(c->kinds[i], number),
                                        kind_keys[i]);
    for (int i = 0; i < SL_RECORD_SKIPS && length < size; i++)
        if (c->skipped[i])
            length += (size_t) snprintf(out + length, size - length, ", %s left out (%s)",
                                        sl_format_count(c->skipped[i], number), skip_names[i]);
    if (c->replaced && length < size)
        length += (size_t) snprintf(out + length, size - length, ", %s half characters replaced",
                                    sl_format_count(c->replaced, number));
    if (cache->counted < cache->tokens && length < size)
        snprintf(out + length, size - length, "; the loss counts %.1f %% of the tokens",
                 100 * (double) cache->counted / (double) cache->tokens);
}

void sl_token_cache_put(const sl_token_cache *cache, sl_json_writer *w)
{
    sl_json_put_i64(w, "records", cache->records.records);
    for (int i = 0; i < SL_RECORD_KINDS; i++)
        if (cache->records.kinds[i])
            sl_json_put_i64(w, kind_keys[i], cache->records.kinds[i]);
    sl_json_begin_object(w, "left_out");
    for (int i = 0; i < SL_RECORD_SKIPS; i++)
        if (cache->records.skipped[i])
            sl_json_put_i64(w, skip_keys[i], cache->records.skipped[i]);
    sl_json_end_object(w);
    sl_json_put_i64(w, "replaced", cache->records.replaced);
    sl_json_put_i64(w, "documents", cache->documents);
    sl_json_put_i64(w, "made_tokens", cache->tokens);
    sl_json_put_i64(w, "counted", cache->counted);
    if (cache->text_bytes >= 0)
        sl_json_put_i64(w, "text_bytes", cache->text_bytes);
    else
        sl_json_put_null(w, "text_bytes");
}
