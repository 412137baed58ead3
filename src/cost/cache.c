/* Measured costs on file, one JSON object per line:
 *
 *     {"device":"cpu avx512","threads":2,"kind":"matmul f32[1024,768] ...","seconds":[0.0021,null]}
 *
 * Lines of other devices and thread counts are kept as they are. Infinity (a signature that cannot run beside host memory) is null. */
#include <math.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "cost/internal.h"

enum { LARGEST_FILE = 16 << 20, MOST_FIGURES = 8 };

typedef struct entry {
    const char *key;
    double figures[MOST_FIGURES];
    int count;
} entry;

struct sl_measure_cache {
    sl_region *region;
    const char *path, *numerics;
    int threads;
    entry *entries;
    int64_t count, capacity;
    sl_text others; /* lines of other devices, unchanged */
    bool changed;
};

static sl_status append(sl_measure_cache *cache, const char *key, const double *figures, int count)
{
    if (cache->count == cache->capacity) {
        int64_t capacity = SL_MAX(64, 2 * cache->capacity);
        SL_TRY(sl_grow(&cache->entries, cache->capacity, capacity, sizeof *cache->entries));
        cache->capacity = capacity;
    }
    entry *e = &cache->entries[cache->count];
    SL_TRY(sl_region_strdup(cache->region, key, &e->key));
    e->count = SL_MIN(count, MOST_FIGURES);
    memcpy(e->figures, figures, (size_t) e->count * sizeof *figures);
    cache->count++;
    return SL_OK;
}

/* False for any line that this file did not write. */
static bool read_line(sl_region *region, const char *line, size_t length, const char **device, int64_t *threads,
                      const char **key, double *figures, int *count)
{
    const sl_json *root;
    if (sl_json_parse(region, "costs", line, length, &root) != SL_OK || root->kind != SL_JSON_OBJECT)
        return false;
    const sl_json *d = sl_json_get(root, "device"), *t = sl_json_get(root, "threads"), *k = sl_json_get(root, "kind"),
                  *s = sl_json_get(root, "seconds");
    if (!d || d->kind != SL_JSON_STRING || !t || !t->is_integer || !k || k->kind != SL_JSON_STRING || !s ||
        s->kind != SL_JSON_ARRAY || s->count < 1 || s->count > MOST_FIGURES)
        return false;
    *device = d->string, *threads = t->integer, *key = k->string, *count = 0;
    for (const sl_json *x = s->child; x; x = x->next) {
        bool is_number = x->kind == SL_JSON_NUMBER && x->number >= 0;
        if (!is_number && x->kind != SL_JSON_NULL)
            return false;
        figures[(*count)++] = is_number ? x->number : INFINITY;
    }
    return true;
}

static sl_status read_lines(sl_measure_cache *cache, const char *text, size_t length)
{
    const char *device, *key;
    int64_t threads, number = 1;
    double figures[MOST_FIGURES];
    int count;
    for (size_t at = 0; at < length; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t bytes = end ? (size_t) (end - text) - at : length - at;
        if (!read_line(cache->region, text + at, bytes, &device, &threads, &key, figures, &count))
            sl_warn("%s:%lld: not a line of measured costs; it is left out", cache->path, (long long) number);
        else if (strcmp(device, cache->numerics) == 0 && threads == cache->threads)
            SL_TRY(append(cache, key, figures, count));
        else {
            sl_text_append(&cache->others, text + at, bytes);
            sl_text_append(&cache->others, "\n", 1);
        }
        at += bytes + 1;
    }
    return sl_text_status(&cache->others);
}

static void destroy(sl_measure_cache *cache)
{
    sl_text_free(&cache->others);
    sl_free(cache->entries);
    sl_region_destroy(cache->region);
    sl_free(cache);
}

sl_status sl_measure_cache_open(const char *path, const char *numerics, int threads, sl_measure_cache **out)
{
    sl_measure_cache *cache;
    sl_status status;
    char *text = NULL;
    size_t length = 0;
    SL_TRY(sl_alloc(&cache, 1, sizeof *cache));
    cache->threads = threads;
    SL_TRY_GOTO(sl_region_create(&cache->region), fail);
    SL_TRY_GOTO(sl_region_strdup(cache->region, numerics, &cache->numerics), fail);
    if (path) {
        SL_TRY_GOTO(sl_region_strdup(cache->region, path, &cache->path), fail);
        if (sl_file_exists(path) && sl_file_read_all(path, LARGEST_FILE, &text, &length) != SL_OK)
            sl_warn("%s; costs are measured again", sl_error_message());
        else
            SL_TRY_GOTO(read_lines(cache, text, length), fail);
    }
    sl_free(text);
    *out = cache;
    return SL_OK;
fail:
    sl_free(text);
    destroy(cache);
    return status;
}

static entry *find(const sl_measure_cache *cache, const char *key, int count)
{
    for (int64_t i = cache->count - 1; i >= 0; i--) /* the last line of a key counts */
        if (cache->entries[i].count == count && strcmp(cache->entries[i].key, key) == 0)
            return &cache->entries[i];
    return NULL;
}

bool sl_measure_cache_get(const sl_measure_cache *cache, const char *key, double *figures, int count)
{
    const entry *e = find(cache, key, count);
    if (e)
        memcpy(figures, e->figures, (size_t) count * sizeof *figures);
    return e != NULL;
}

sl_status sl_measure_cache_put(sl_measure_cache *cache, const char *key, const double *figures, int count)
{
    entry *e = find(cache, key, count);
    cache->changed = true;
    if (!e)
        return append(cache, key, figures, count);
    memcpy(e->figures, figures, (size_t) count * sizeof *figures);
    return SL_OK;
}

void sl_measure_cache_clear(sl_measure_cache *cache)
{
    cache->count = 0;
    cache->changed = true;
}

static sl_status write_lines(const sl_measure_cache *cache)
{
    sl_text all = {0};
    sl_text_append(&all, cache->others.data ? cache->others.data : "", cache->others.length);
    for (int64_t i = 0; i < cache->count; i++) {
        const entry *e = &cache->entries[i];
        sl_json_writer w = {0};
        sl_json_begin_object(&w, NULL);
        sl_json_put_string(&w, "device", cache->numerics);
        sl_json_put_i64(&w, "threads", cache->threads);
        sl_json_put_string(&w, "kind", e->key);
        sl_json_begin_array(&w, "seconds");
        for (int k = 0; k < e->count; k++)
            sl_json_put_f64(&w, NULL, e->figures[k]);
        sl_json_end_array(&w);
        sl_json_end_object(&w);
        sl_text_append(&all, w.text.data ? w.text.data : "", w.text.length);
        sl_text_append(&all, "\n", 1);
        all.failed |= w.text.failed;
        sl_text_free(&w.text);
    }
    sl_status status = sl_text_status(&all);
    if (status == SL_OK)
        status = sl_file_write_atomic(cache->path, all.data, all.length);
    sl_text_free(&all);
    return status;
}

void sl_measure_cache_close(sl_measure_cache *cache)
{
    if (!cache)
        return;
    if (cache->path && cache->changed && write_lines(cache) != SL_OK)
        sl_warn("measured costs were not kept: %s", sl_error_message());
    destroy(cache);
}
