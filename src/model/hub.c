/*
 * Models by the name they have on Hugging Face, from the cache that its tools fill. Nothing is downloaded.
 *
 *     <cache>/models--ORG--NAME/refs/main                  the commit that `main` was when it was downloaded
 *     <cache>/models--ORG--NAME/snapshots/<commit>/        the files, which are links into ../../blobs
 *
 * <cache> is $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub: the first that is
 * set, and only that one, as everywhere else.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "model/model.h"

enum { NAME_BYTES = 200, COMMIT_LIMIT = 4096 };

typedef struct hub_name {
    char org[NAME_BYTES], name[NAME_BYTES], revision[NAME_BYTES];
} hub_name;

/* Letters, digits and "._-", as Hugging Face allows them; so neither ".." nor a slash leads elsewhere. */
static bool take(const char *from, size_t length, char out[NAME_BYTES])
{
    if (length == 0 || length >= NAME_BYTES || from[0] == '.')
        return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char) from[i]) && !strchr("._-", from[i]))
            return false;
    memcpy(out, from, length);
    out[length] = 0;
    return true;
}

/* "ORG/NAME", "ORG/NAME@REVISION" */
static bool parse_name(const char *text, hub_name *out)
{
    const char *slash = strchr(text, '/'), *at = slash ? strchr(slash, '@') : NULL;
    if (!slash || !take(text, (size_t) (slash - text), out->org))
        return false;
    size_t length = at ? (size_t) (at - slash) - 1 : strlen(slash + 1);
    return take(slash + 1, length, out->name) &&
           take(at ? at + 1 : "main", at ? strlen(at + 1) : strlen("main"), out->revision);
}

static bool join(char out[SL_MODEL_PATH_BYTES], const char *a, const char *b)
{
    return snprintf(out, SL_MODEL_PATH_BYTES, "%s%s", a, b) < SL_MODEL_PATH_BYTES;
}

static bool find_cache(char out[SL_MODEL_PATH_BYTES])
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (int64_t i = 0; i < SL_COUNT(places); i++) {
        const char *value = getenv(places[i].variable);
        if (value && value[0])
            return join(out, value, places[i].below);
    }
    return false;
}

/* The commit that refs/REVISION names, where there is such a file. */
static sl_status read_ref(const char *model, const char *revision, char commit[NAME_BYTES])
{
    char path[SL_MODEL_PATH_BYTES + NAME_BYTES + 8], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/refs/%s", model, revision);
    snprintf(commit, NAME_BYTES, "%s", revision); /* a commit is its own name */
    if (!sl_file_exists(path))
        return SL_OK;
    SL_TRY(sl_file_read_all(path, COMMIT_LIMIT, &text, &length));
    while (length && isspace((unsigned char) text[length - 1]))
        length--;
    bool good = take(text, length, commit);
    sl_free(text);
    return good ? SL_OK : sl_fail(SL_E_FORMAT, "%s does not hold the name of a commit", path);
}

static sl_status find_snapshot(const char *text, const hub_name *name, const char *model,
                               char path[SL_MODEL_PATH_BYTES])
{
    char commit[NAME_BYTES];
    SL_TRY(read_ref(model, name->revision, commit));
    if (snprintf(path, SL_MODEL_PATH_BYTES, "%s/snapshots/%s", model, commit) >= SL_MODEL_PATH_BYTES)
        return sl_fail(SL_E_USAGE, "the path of model %s in the Hugging Face cache is too long", text);
    if (sl_dir_exists(path))
        return SL_OK;
    return sl_fail(
        SL_E_USAGE,
        "model \"%s\": %s has no revision \"%s\" (no folder %s); nothing is downloaded: `hf download %s/%s%s%s`", text,
        model, name->revision, path, name->org, name->name, strcmp(name->revision, "main") ? " --revision " : "",
        strcmp(name->revision, "main") ? name->revision : "");
}

sl_status sl_model_locate(const char *text, char path[SL_MODEL_PATH_BYTES])
{
    hub_name name;
    char cache[SL_MODEL_PATH_BYTES], model[SL_MODEL_PATH_BYTES];
    bool named = !sl_dir_exists(text) && !sl_file_exists(text) && parse_name(text, &name);
    if (!named)
        return join(path, text, "") ? SL_OK
                                    : sl_fail(SL_E_USAGE, "--model has a path of %zu bytes: use one of at most %d",
                                              strlen(text), SL_MODEL_PATH_BYTES - 1);
    if (!find_cache(cache))
        return sl_fail(
            SL_E_USAGE,
            "no model \"%s\": there is no such folder, and neither HF_HOME nor HOME is set to find the Hugging "
            "Face cache",
            text);
    if (snprintf(model, sizeof model, "%s/models--%s--%s", cache, name.org, name.name) >= (int) sizeof model)
        return sl_fail(SL_E_USAGE, "the path of the Hugging Face cache, %s, is too long", cache);
    if (sl_dir_exists(model))
        return find_snapshot(text, &name, model, path);
    return sl_fail(SL_E_USAGE,
                   "no model \"%s\": there is neither such a folder nor %s in the Hugging Face cache; nothing is "
                   "downloaded: `hf download %s/%s`, or set HF_HOME",
                   text, model, name.org, name.name);
}
