/*
 * A model's folder that holds weights is a trained model: random weights need --from-scratch. So is a
 * config.json that is named itself: the files beside it are its weights.
 */
#include "train/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"

/* ---- finding them ---- */

static bool is_there(const char *folder, const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return sl_file_exists(path) || sl_dir_exists(path);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Weights by their names: PyTorch's own format, shards without an index, adapters. */
static bool looks_like_weights(const char *name)
{
    return ends_with(name, ".safetensors") || ends_with(name, ".pth") ||
           (strncmp(name, "pytorch_model", 13) == 0 && ends_with(name, ".bin"));
}

static sl_status refuse_other_weights(const char *folder)
{
    sl_region *region;
    const char **names;
    int64_t count = 0;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_dir_list(region, folder, &names, &count);
    for (int64_t i = 0; i < count && status == SL_OK; i++)
        if (looks_like_weights(names[i]))
            status =
                sl_fail(SL_E_USAGE,
                        "%s/%s is not read as weights, only model.safetensors and model.safetensors.index.json are: "
                        "convert it, name a file with --init-from, or begin with random weights (--from-scratch)",
                        folder, names[i]);
    sl_region_destroy(region);
    return status;
}

sl_status sl_weights_find(const sl_setup *setup, char path[1024])
{
    path[0] = 0;
    if (setup->init_from)
        return sl_model_locate(setup->init_from, path);
    if (setup->from_scratch || !setup->model_folder[0])
        return SL_OK;
    if (!is_there(setup->model_folder, "model.safetensors") &&
        !is_there(setup->model_folder, "model.safetensors.index.json"))
        return refuse_other_weights(setup->model_folder);
    snprintf(path, 1024, "%s", setup->model_folder);
    return SL_OK;
}

sl_status sl_weights_open(const sl_setup *setup, const char *path, sl_tensors **tensors)
{
    SL_TRY(sl_tensors_open(path, tensors));
    if (!sl_tensors_in_pairs(*tensors) || setup->model.rope_style == SL_ROPE_INTERLEAVED)
        return SL_OK;
    sl_tensors_close(*tensors);
    return sl_fail(
        SL_E_FORMAT,
        "the config.json beside the weights of %s has \"rope_interleaved\": true, but model %s rotates halves: "
        "train them with --model %s",
        path, setup->model.name, path);
}

/* ---- what they are ---- */

static void list_dtypes(const sl_tensors *tensors, char out[96])
{
    bool seen[SL_FILE_DTYPE_COUNT] = {false};
    size_t used = 0;
    out[0] = 0;
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++)
        seen[sl_tensors_at(tensors, i)->dtype] = true;
    for (int d = 0; d < SL_FILE_DTYPE_COUNT && used < 80; d++)
        if (seen[d])
            used += (size_t) snprintf(out + used, 96 - used, "%s%s", used ? ", " : "",
                                      sl_file_dtype_name((sl_file_dtype) d));
}

static sl_status describe_files(const sl_tensors *tensors, const sl_program *program, sl_weights *w)
{
    sl_text names = {0};
    sl_status status = sl_params_left_out(tensors, program->params, program->n_params, &names, &w->n_left_out);
    if (status == SL_OK)
        status = sl_text_status(&names);
    snprintf(w->left_out, sizeof w->left_out, "%s", names.data ? names.data : "");
    if (names.length >= sizeof w->left_out)
        memcpy(w->left_out + sizeof w->left_out - 4, "...", 4);
    sl_text_free(&names);
    w->tensors = sl_tensors_count(tensors) - w->n_left_out;
    list_dtypes(tensors, w->dtypes);
    return status;
}

static void describe(sl_weights *w)
{
    char count[32];
    if (w->kind == SL_WEIGHTS_RANDOM)
        snprintf(w->text, sizeof w->text, "random, seed %" PRIu64, w->seed);
    else if (w->kind == SL_WEIGHTS_FILES)
        snprintf(w->text, sizeof w->text, "%s: %s tensor%s, %s%s%s", w->path, sl_format_count(w->tensors, count),
                 w->tensors == 1 ? "" : "s", w->dtypes, w->n_left_out ? "; without use here: " : "", w->left_out);
    else
        snprintf(w->text, sizeof w->text, "the checkpoint of step %" PRId64 "%s%.1400s", w->step,
                 w->began[0] ? "; the run began with " : "", w->began);
    if (w->adapters[0]) {
        const size_t used = strlen(w->text);
        snprintf(w->text + used, sizeof w->text - used, "; adapters: %s", w->adapters);
    }
    if (w->kind != SL_WEIGHTS_CHECKPOINT)
        memcpy(w->began, w->text, sizeof w->began);
}

/* ---- taking them ---- */

static sl_status begin_with_files(const sl_setup *setup, sl_store *store, sl_weights *w)
{
    sl_tensors *tensors = NULL;
    SL_TRY(sl_weights_open(setup, w->path, &tensors));
    sl_status status = sl_store_init_from(store, tensors);
    if (status == SL_OK)
        status = describe_files(tensors, store->program, w);
    sl_tensors_close(tensors);
    return status;
}

static sl_status begin_with_random(const sl_setup *setup, sl_store *store, bool adapters)
{
    sl_pool *pool = NULL;
    SL_TRY(sl_pool_create(setup->threads, &pool));
    sl_status status = adapters ? sl_store_init_adapters_random(store, setup->seed, pool)
                                : sl_store_init_random(store, setup->seed, pool);
    sl_pool_destroy(pool);
    return status;
}

sl_status sl_weights_open_adapter(const sl_setup *setup, sl_tensors **tensors)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/" SL_LORA_WEIGHTS, setup->init_adapter);
    return sl_tensors_open(path, tensors);
}

sl_status sl_weights_begin_adapters(const sl_setup *setup, sl_store *store, sl_weights *w)
{
    sl_tensors *tensors = NULL;
    if (!setup->init_adapter) {
        SL_TRY(begin_with_random(setup, store, true));
    } else {
        SL_TRY(sl_weights_open_adapter(setup, &tensors));
        sl_status status = sl_store_init_adapters_from(store, tensors);
        sl_tensors_close(tensors);
        SL_TRY(status);
    }
    snprintf(w->adapters, sizeof w->adapters, "%.900s", setup->init_adapter ? setup->init_adapter : "new");
    describe(w);
    return SL_OK;
}

sl_status sl_weights_begin(const sl_setup *setup, sl_store *store, sl_weights *w)
{
    *w = (sl_weights){.seed = setup->seed};
    SL_TRY(sl_weights_find(setup, w->path));
    w->kind = w->path[0] ? SL_WEIGHTS_FILES : SL_WEIGHTS_RANDOM;
    if (w->kind == SL_WEIGHTS_FILES)
        SL_TRY(begin_with_files(setup, store, w));
    else
        SL_TRY(begin_with_random(setup, store, false));
    describe(w);
    return SL_OK;
}

void sl_weights_resumed(const char *path, int64_t step, const char *began, sl_weights *w)
{
    *w = (sl_weights){.kind = SL_WEIGHTS_CHECKPOINT, .step = step};
    snprintf(w->path, sizeof w->path, "%s", path);
    snprintf(w->began, sizeof w->began, "%s", began);
    describe(w);
}

void sl_weights_put(const sl_weights *weights, sl_json_writer *w)
{
    static const char *const kinds[] = {"random", "files", "checkpoint"};
    sl_json_begin_object(w, "weights");
    sl_json_put_string(w, "from", kinds[weights->kind]);
    if (weights->kind == SL_WEIGHTS_RANDOM)
        sl_json_put_i64(w, "seed", (int64_t) weights->seed);
    else
        sl_json_put_string(w, "path", weights->path);
    if (weights->kind == SL_WEIGHTS_FILES) {
        sl_json_put_i64(w, "tensors", weights->tensors);
        sl_json_put_string(w, "dtypes", weights->dtypes);
        sl_json_put_i64(w, "left_out", weights->n_left_out);
        sl_json_put_string(w, "left_out_names", weights->left_out);
    }
    if (weights->kind == SL_WEIGHTS_CHECKPOINT) {
        sl_json_put_i64(w, "step", weights->step);
        sl_json_put_string(w, "began", weights->began);
    }
    if (weights->adapters[0])
        sl_json_put_string(w, "adapters", weights->adapters);
    sl_json_end_object(w);
}
