/*
 * Finding a checkpoint to trust. Newest first: state.json must parse and carry the hash of its own text, and every file it names
 * must have its size and hash. Only then is it compared with the job, so that damage is never mistaken for a difference.
 */
#include "train/checkpoint_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "train/identity.h"

/* Version 2: q and k of interleaved rotation lie in Hugging Face's order. Version 1 is read too: its config.json has the order. */
enum { STATE_LIMIT = 1 << 20, STATE_VERSION = 2 };
static const char self_key[] = ",\"checksum\":\"";

struct sl_checkpoint_state {
    sl_region *region;
    sl_progress progress;
    sl_checkpoint_file files[SL_CHECKPOINT_FILES];
    sl_checkpoint_shards shards;
    const sl_json *identity;
    const char *weights;
};

void sl_checkpoint_file_names(bool adapters, sl_checkpoint_file files[SL_CHECKPOINT_FILES])
{
    static const char *const names[2][SL_CHECKPOINT_FILES] = {
        {"config.json", "model.safetensors", "optimizer.safetensors"},
        {SL_LORA_CONFIG, SL_LORA_WEIGHTS, "optimizer.safetensors"}};
    for (int i = 0; i < SL_CHECKPOINT_FILES; i++)
        files[i] = (sl_checkpoint_file){.name = names[adapters][i]};
}

bool sl_checkpoint_has_adapters(const sl_program *program)
{
    int32_t p = 0;
    while (p < program->n_params && !program->params[p].adapter)
        p++;
    return p < program->n_params;
}

sl_status sl_checkpoint_file_hash(const char *path, void *buffer, size_t buffer_bytes, int64_t *bytes, uint64_t *hash)
{
    sl_reader *reader = NULL;
    sl_hasher hasher;
    sl_status status = SL_OK;
    SL_TRY(sl_reader_open(path, &reader));
    sl_hash_begin(&hasher, 0);
    int64_t size = sl_reader_size(reader);
    for (int64_t at = 0; at < size && status == SL_OK;) {
        size_t n = (size_t) SL_MIN(size - at, (int64_t) buffer_bytes);
        status = sl_reader_read(reader, at, buffer, n);
        if (status == SL_OK)
            sl_hash_add(&hasher, buffer, n);
        at += (int64_t) n;
    }
    sl_reader_close(reader);
    SL_TRY(status);
    *bytes = size;
    *hash = sl_hash_end(&hasher);
    return SL_OK;
}

/* ---- state.json ---- */

static void put_hex(sl_json_writer *w, const char *key, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    sl_json_put_string(w, key, text);
}

static void put_file(sl_json_writer *w, const sl_checkpoint_file *file)
{
    sl_json_begin_object(w, file->name);
    sl_json_put_i64(w, "bytes", file->bytes);
    put_hex(w, "hash", file->hash);
    sl_json_end_object(w);
}

void sl_checkpoint_state_text(const sl_identity *identity, const sl_options *options, const sl_progress *progress,
                              const sl_checkpoint_file files[SL_CHECKPOINT_FILES], const sl_checkpoint_shards *shards,
                              sl_text *out)
{
    sl_json_writer w = {0};
    char time[32];
    sl_clock_utc(time);
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "format", "sluice checkpoint");
    sl_json_put_i64(&w, "version", STATE_VERSION);
    sl_json_put_string(&w, "sluice", SL_VERSION);
    sl_json_put_string(&w, "time", time);
    sl_json_put_i64(&w, "step", progress->step);
    sl_json_put_i64(&w, "position", progress->position);
    sl_json_put_i64(&w, "updates", progress->updates);
    sl_json_put_string(&w, "weights", identity->weights);
    sl_json_begin_object(&w, "files");
    for (int i = 0; i < SL_CHECKPOINT_FILES; i++)
        put_file(&w, &files[i]);
    for (int64_t i = 0; i < shards->count; i++)
        put_file(&w, &shards->files[i]);
    sl_json_end_object(&w);
    sl_json_begin_object(&w, "run");
    sl_identity_put(identity, &w);
    sl_json_end_object(&w);
    sl_json_begin_object(&w, "options");
    sl_options_put(options, &w);
    sl_json_end_object(&w);
    /* Its own hash comes last and covers everything before it. */
    uint64_t self = w.text.data ? sl_hash64(w.text.data, w.text.length, 0) : 0;
    put_hex(&w, "checksum", self);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    *out = w.text;
}

static sl_status read_hex(const char *name, const sl_json *object, const char *key, uint64_t *out)
{
    const char *text;
    SL_TRY(sl_json_string_or(name, object, key, "", &text));
    char *end;
    *out = strtoull(text, &end, 16);
    if (strlen(text) != 16 || *end)
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" is not a hash of 16 hexadecimal digits", name, key);
    return SL_OK;
}

static sl_status check_self(const char *path, const char *text, size_t length, const sl_json *root)
{
    uint64_t want;
    const char *last = NULL, *at = text;
    SL_TRY(read_hex(path, root, "checksum", &want));
    while ((at = memmem(at, length - (size_t) (at - text), self_key, sizeof self_key - 1)) != NULL)
        last = at++;
    if (!last || sl_hash64(text, (size_t) (last - text), 0) != want)
        return sl_fail(SL_E_FORMAT, "%s does not have the content that its checksum tells", path);
    return SL_OK;
}

static sl_status read_count(const char *path, const sl_json *object, const char *key, int64_t *out)
{
    SL_TRY(sl_json_i64(path, object, key, out));
    if (*out < 0)
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" is %" PRId64 ", but cannot be negative", path, key, *out);
    return SL_OK;
}

static sl_status read_file(const char *path, const sl_json *member, sl_checkpoint_file *file)
{
    SL_TRY(read_count(path, member, "bytes", &file->bytes));
    return read_hex(path, member, "hash", &file->hash);
}

/* Beside the three of every checkpoint, those that the index of the weights names. */
static sl_status read_shards(const char *path, const sl_json *files, sl_checkpoint_state *state)
{
    sl_checkpoint_shards *shards = &state->shards;
    SL_TRY(sl_region_alloc(state->region, &shards->files, SL_MAX(files->count, 1), sizeof *shards->files));
    for (const sl_json *member = files->child; member; member = member->next) {
        bool known = false;
        for (int i = 0; i < SL_CHECKPOINT_FILES; i++)
            known |= strcmp(member->key, state->files[i].name) == 0;
        if (known)
            continue;
        if (strncmp(member->key, "model-", 6) != 0 || strchr(member->key, '/'))
            return sl_fail(SL_E_FORMAT, "%s tells of a file \"%s\", which is none of a checkpoint's", path,
                           member->key);
        shards->files[shards->count].name = member->key;
        SL_TRY(read_file(path, member, &shards->files[shards->count++]));
    }
    return SL_OK;
}

static sl_status read_files(const char *path, const sl_json *files, sl_checkpoint_state *state)
{
    sl_checkpoint_file_names(sl_json_get(files, SL_LORA_WEIGHTS) != NULL, state->files);
    for (int i = 0; i < SL_CHECKPOINT_FILES; i++) {
        const sl_json *file = sl_json_get(files, state->files[i].name);
        if (!file && i == SL_CHECKPOINT_MODEL) {
            const char *index;
            SL_TRY(sl_region_printf(state->region, &index, "%s.index.json", state->files[i].name));
            file = sl_json_get(files, index);
            state->files[i].name = file ? index : state->files[i].name;
        }
        if (!file)
            return sl_fail(SL_E_FORMAT, "%s does not tell size and hash of %s", path, state->files[i].name);
        SL_TRY(read_file(path, file, &state->files[i]));
    }
    return read_shards(path, files, state);
}

static sl_status read_members(const char *path, const sl_json *root, sl_checkpoint_state *state)
{
    const char *format;
    int64_t version;
    SL_TRY(sl_json_string_or(path, root, "format", "", &format));
    if (strcmp(format, "sluice checkpoint") != 0)
        return sl_fail(SL_E_FORMAT, "%s is not the state of a Sluice checkpoint", path);
    SL_TRY(sl_json_i64(path, root, "version", &version));
    if (version < 1 || version > STATE_VERSION)
        return sl_fail(SL_E_FORMAT, "%s has version %" PRId64 "; this Sluice (%s) reads versions up to %d", path,
                       version, SL_VERSION, STATE_VERSION);
    SL_TRY(sl_json_string_or(path, root, "weights", "", &state->weights));
    SL_TRY(read_count(path, root, "step", &state->progress.step));
    SL_TRY(read_count(path, root, "position", &state->progress.position));
    SL_TRY(read_count(path, root, "updates", &state->progress.updates));
    SL_TRY(read_files(path, sl_json_get(root, "files"), state));
    state->identity = sl_json_get(root, "run");
    if (!state->identity || state->identity->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s does not tell which run it belongs to", path);
    return SL_OK;
}

sl_status sl_checkpoint_state_read(const char *path, sl_checkpoint_state **out)
{
    sl_checkpoint_state *state;
    char *text = NULL;
    size_t length = 0;
    const sl_json *root = NULL;
    sl_status status;
    SL_TRY(sl_alloc(&state, 1, sizeof *state));
    SL_TRY_GOTO(sl_region_create(&state->region), fail);
    SL_TRY_GOTO(sl_file_read_all(path, STATE_LIMIT, &text, &length), fail);
    SL_TRY_GOTO(sl_json_parse(state->region, path, text, length, &root), fail);
    SL_TRY_GOTO(check_self(path, text, length, root), fail);
    SL_TRY_GOTO(read_members(path, root, state), fail);
    sl_free(text);
    *out = state;
    return SL_OK;
fail:
    sl_free(text);
    sl_checkpoint_state_destroy(state);
    return status;
}

void sl_checkpoint_state_destroy(sl_checkpoint_state *state)
{
    if (!state)
        return;
    sl_region_destroy(state->region);
    sl_free(state);
}

/* ---- a run's folders ---- */

/* "step-00000100" -> 100; -1 for any other name, "step-00000100.tmp" included. */
static int64_t step_of(const char *name)
{
    char again[64];
    int64_t step;
    if (strncmp(name, "step-", 5) != 0 || sscanf(name + 5, "%" SCNd64, &step) != 1 || step < 0)
        return -1;
    snprintf(again, sizeof again, "step-%08" PRId64, step);
    return strcmp(again, name) == 0 ? step : -1;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Steps of the folders with final names, newest first; with `tidy`, what killed writers left is removed. */
static sl_status list_steps(sl_region *region, const char *out, bool tidy, int64_t **steps, int64_t *count)
{
    char folder[1024];
    const char **names = NULL;
    int64_t n = 0;
    *steps = NULL;
    *count = 0;
    snprintf(folder, sizeof folder, "%s/checkpoints", out);
    if (!sl_dir_exists(folder))
        return SL_OK;
    SL_TRY(sl_dir_list(region, folder, &names, &n));
    SL_TRY(sl_region_alloc(region, steps, SL_MAX(n, 1), sizeof **steps));
    for (int64_t i = 0; i < n; i++) {
        size_t length = strlen(names[i]);
        int64_t step = step_of(names[i]);
        if (step >= 0) {
            (*steps)[(*count)++] = step;
        } else if (tidy && length > 4 && strncmp(names[i], "step-", 5) == 0 &&
                   strcmp(names[i] + length - 4, ".tmp") == 0) {
            char path[1400];
            snprintf(path, sizeof path, "%s/%s", folder, names[i]);
            SL_TRY(sl_dir_remove(path));
        }
    }
    if (*count)
        qsort(*steps, (size_t) *count, sizeof **steps, descending);
    return SL_OK;
}

static sl_status find_newest(const char *out, bool tidy, int64_t *step)
{
    sl_region *region = NULL;
    int64_t *steps, count = 0;
    SL_TRY(sl_region_create(&region));
    sl_status status = list_steps(region, out, tidy, &steps, &count);
    if (status == SL_OK)
        *step = count ? steps[0] : -1;
    sl_region_destroy(region);
    return status;
}

sl_status sl_checkpoint_newest(const char *out, int64_t *step)
{
    return find_newest(out, false, step);
}

sl_status sl_checkpoint_tidy(const char *out)
{
    int64_t newest;
    return find_newest(out, true, &newest);
}

sl_status sl_checkpoint_remove(const char *path)
{
    char doomed[1200];
    snprintf(doomed, sizeof doomed, "%s.old.tmp", path);
    SL_TRY(sl_dir_remove(doomed));
    SL_TRY(sl_rename_durable(path, doomed));
    return sl_dir_remove(doomed);
}

void sl_checkpoint_prune(const char *out, int64_t written, int64_t keep)
{
    sl_region *region = NULL;
    int64_t *steps, count = 0, kept = 0;
    sl_status status = sl_region_create(&region);
    if (status == SL_OK)
        status = list_steps(region, out, false, &steps, &count);
    for (int64_t i = 0; i < count && status == SL_OK; i++) {
        char path[1100];
        if (steps[i] > written || kept++ < keep)
            continue;
        snprintf(path, sizeof path, "%s/checkpoints/step-%08" PRId64, out, steps[i]);
        status = sl_checkpoint_remove(path);
    }
    if (status != SL_OK)
        sl_warn("an old checkpoint could not be removed: %s", sl_error_message());
    sl_region_destroy(region);
}

/* ---- finding one to resume from ---- */

static sl_status check_file(const sl_store *store, const char *folder, const sl_checkpoint_file *file)
{
    char path[1400];
    int64_t bytes;
    uint64_t hash;
    snprintf(path, sizeof path, "%s/%s", folder, file->name);
    SL_TRY(sl_file_size(path, &bytes));
    if (bytes != file->bytes)
        return sl_fail(SL_E_FORMAT, "%s has %" PRId64 " bytes instead of %" PRId64, path, bytes, file->bytes);
    SL_TRY(sl_checkpoint_file_hash(path, store->buffer, SL_PARAM_BUFFER_BYTES, &bytes, &hash));
    if (hash != file->hash)
        return sl_fail(SL_E_FORMAT, "%s does not have the content that state.json tells", path);
    return SL_OK;
}

static sl_status check_files(const sl_store *store, const char *folder, const sl_checkpoint_state *state)
{
    for (int i = 0; i < SL_CHECKPOINT_FILES; i++)
        SL_TRY(check_file(store, folder, &state->files[i]));
    for (int64_t i = 0; i < state->shards.count; i++)
        SL_TRY(check_file(store, folder, &state->shards.files[i]));
    return SL_OK;
}

static sl_status try_one(const sl_store *store, int64_t step, sl_checkpoint *found, sl_checkpoint_state **state)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/state.json", found->path);
    SL_TRY(sl_checkpoint_state_read(path, state));
    if ((*state)->progress.step != step)
        return sl_fail(SL_E_FORMAT, "%s tells step %" PRId64 ", its folder step %" PRId64, path,
                       (*state)->progress.step, step);
    return check_files(store, found->path, *state);
}

sl_status sl_checkpoint_find(sl_store *store, const sl_identity *identity, sl_checkpoint *found)
{
    sl_region *region = NULL;
    sl_checkpoint_state *state = NULL;
    int64_t *steps, count = 0;
    sl_status status;
    found->progress = (sl_progress){.step = -1};
    SL_TRY(sl_region_create(&region));
    SL_TRY_GOTO(list_steps(region, identity->setup->out, true, &steps, &count), done);
    for (int64_t i = 0; i < count; i++) {
        snprintf(found->path, sizeof found->path, "%s/checkpoints/step-%08" PRId64, identity->setup->out, steps[i]);
        status = try_one(store, steps[i], found, &state);
        if (status == SL_OK) {
            found->progress = state->progress;
            snprintf(found->weights, sizeof found->weights, "%s", state->weights);
            status = sl_identity_compare(identity, found->path, state->identity, state->progress.step);
            goto done;
        }
        if (status == SL_E_MEMORY)
            goto done;
        sl_warn("checkpoint %s is damaged: %s%s", found->path, sl_error_message(),
                i + 1 < count ? "; trying the one before" : "");
        sl_checkpoint_state_destroy(state);
        state = NULL;
    }
    if (count)
        status = sl_fail(SL_E_FORMAT,
                         "%s/checkpoints holds %" PRId64
                         " checkpoint%s, but none is intact (the oldest: %s): put one back, or "
                         "give another --out to begin anew",
                         identity->setup->out, count, count == 1 ? "" : "s", sl_error_message());
done:
    sl_checkpoint_state_destroy(state);
    sl_region_destroy(region);
    return status;
}
