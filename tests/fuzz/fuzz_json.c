/* Any bytes through the JSON reader; what it accepts is written again and must read back as the same tree. */
#include <string.h>

#include "core/hash.h"
#include "core/json.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {"{",     "}",         "[",
                                          "]",     ":",         ",",
                                          "\"",    "null",      "true",
                                          "false", "\\u0000",   "\\ud83d\\ude00",
                                          "\\\"",  "{\"a\":1}", "[[[[",
                                          "]]]]",  "\"a\":",    "-",
                                          "e+",    "\xc3\xa9",  "\xed\xa0\x80",
                                          NULL};

static bool same(const sl_json *a, const sl_json *b)
{
    if (a->kind != b->kind || a->count != b->count || a->boolean != b->boolean || a->is_integer != b->is_integer)
        return false;
    if (a->kind == SL_JSON_NUMBER && (a->number != b->number || (a->is_integer && a->integer != b->integer)))
        return false;
    if (a->kind == SL_JSON_STRING && strcmp(a->string, b->string) != 0)
        return false;
    if ((a->key != NULL) != (b->key != NULL) || (a->key && strcmp(a->key, b->key) != 0))
        return false;
    for (a = a->child, b = b->child; a && b; a = a->next, b = b->next)
        if (!same(a, b))
            return false;
    return !a && !b;
}

static void put(sl_json_writer *w, const sl_json *value)
{
    bool array = value->kind == SL_JSON_ARRAY;
    switch (value->kind) {
    case SL_JSON_NULL:
        sl_json_put_null(w, value->key);
        break;
    case SL_JSON_BOOL:
        sl_json_put_bool(w, value->key, value->boolean);
        break;
    case SL_JSON_NUMBER:
        if (value->is_integer)
            sl_json_put_i64(w, value->key, value->integer);
        else
            sl_json_put_f64(w, value->key, value->number);
        break;
    case SL_JSON_STRING:
        sl_json_put_string(w, value->key, value->string);
        break;
    case SL_JSON_ARRAY:
    case SL_JSON_OBJECT:
        array ? sl_json_begin_array(w, value->key) : sl_json_begin_object(w, value->key);
        for (const sl_json *item = value->child; item; item = item->next)
            put(w, item);
        array ? sl_json_end_array(w) : sl_json_end_object(w);
    }
}

/* Numbers like 1e2 are written as 100, an integer: those trees are compared after one more round. */
static const sl_json *rewrite(sl_region *region, const sl_json *root)
{
    sl_json_writer w = {.depth = 0};
    const sl_json *again = NULL;
    put(&w, root);
    FUZZ_REQUIRE(sl_text_status(&w.text) == SL_OK);
    FUZZ_REQUIRE(sl_json_parse(region, "again", w.text.data, w.text.length, &again) == SL_OK);
    sl_text_free(&w.text);
    return again;
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_region *region;
    const sl_json *root;
    FUZZ_REQUIRE(sl_region_create(&region) == SL_OK);
    sl_status status = sl_json_parse(region, "fuzz", (const char *) data, size, &root);
    if (status == SL_OK) {
        const sl_json *once = rewrite(region, root);
        FUZZ_REQUIRE(same(once, rewrite(region, once)));
    } else {
        FUZZ_REQUIRE(status == SL_E_FORMAT && sl_error_message()[0]);
    }
    /* The message without its place tells how the parser ended: new endings are worth keeping. */
    const char *tail = status == SL_OK ? "" : strrchr(sl_error_message(), ':');
    int outcome = status == SL_OK ? 1000 + (int) root->count : (int) (sl_hash64(tail, strlen(tail), 0) & 0x7fff);
    sl_region_destroy(region);
    FUZZ_REQUIRE(sl_heap_bytes() == 0);
    return outcome;
}
