/*
 * What config.json says of single layers: which see a window only, and which do not rotate. Families say it in different ways:
 *
 *     sliding_window                                       every layer (Mistral, Phi-3)
 *     use_sliding_window, sliding_window                   some layers, if switched on: those from "max_window_layers" on
 *                                                          (Qwen), or the ones that "layer_types" names
 *
 * A window without effect leaves no trace in the model: flags are set for layers that have one.
 */
#include <string.h>

#include "model/internal.h"

static bool given(const sl_json *object, const char *key)
{
    const sl_json *member = sl_json_get(object, key);
    return member && member->kind != SL_JSON_NULL;
}

sl_status sl_layers_read_window(const char *file, const sl_json *root, int64_t otherwise, sl_model *model)
{
    const sl_json *member = sl_json_get(root, "sliding_window");
    model->window = 0;
    if (member ? member->kind == SL_JSON_NULL : otherwise == 0)
        return SL_OK;
    return sl_config_count(file, root, "sliding_window", otherwise ? otherwise : 1, INT32_MAX, &model->window);
}

sl_status sl_layers_read_types(const char *file, const sl_json *root, sl_model *model, bool *found)
{
    const sl_json *list = sl_json_get(root, "layer_types");
    int64_t i = 0;
    *found = given(root, "layer_types");
    if (!*found)
        return SL_OK;
    if (list->kind != SL_JSON_ARRAY || list->count != model->layers)
        return sl_fail(SL_E_FORMAT, "%s: \"layer_types\" must be a list of %lld names, one for each layer", file,
                       (long long) model->layers);
    for (const sl_json *item = list->child; item; item = item->next, i++) {
        const bool full = item->kind == SL_JSON_STRING && strcmp(item->string, "full_attention") == 0;
        if (!full && (item->kind != SL_JSON_STRING || strcmp(item->string, "sliding_attention") != 0))
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s:%d: \"layer_types\" has something else than \"full_attention\" and "
                           "\"sliding_attention\"",
                           file, item->line);
        model->layer_flags[i] &= (uint8_t) ~SL_LAYER_WINDOW;
        model->layer_flags[i] |= full ? 0 : SL_LAYER_WINDOW;
    }
    return SL_OK;
}

int64_t sl_layers_windowed(const sl_model *model)
{
    int64_t count = 0;
    for (int64_t i = 0; i < model->layers; i++)
        count += (model->layer_flags[i] & SL_LAYER_WINDOW) != 0;
    return count;
}

sl_status sl_layers_read_same_window(const char *file, const sl_json *root, int64_t otherwise, sl_model *model)
{
    bool found;
    SL_TRY(sl_layers_read_window(file, root, otherwise, model));
    SL_TRY(sl_layers_read_types(file, root, model, &found));
    if (found && sl_layers_windowed(model) != (model->window ? model->layers : 0))
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: \"layer_types\" contradicts \"sliding_window\", which holds for every layer", file);
    for (int64_t i = 0; i < model->layers && model->window; i++)
        model->layer_flags[i] |= SL_LAYER_WINDOW;
    return SL_OK;
}

sl_status sl_layers_read_switched(const char *file, const sl_json *root, int64_t otherwise, sl_model *model,
                                  bool *by_types)
{
    bool use;
    SL_TRY(sl_json_bool_or(file, root, "use_sliding_window", false, &use));
    SL_TRY(sl_layers_read_types(file, root, model, by_types));
    if (use)
        SL_TRY(sl_layers_read_window(file, root, otherwise, model));
    if (!model->window && sl_layers_windowed(model))
        return sl_fail(SL_E_FORMAT, "%s: \"layer_types\" has \"sliding_attention\", but there is no window: %s", file,
                       use ? "\"sliding_window\" is null" : "\"use_sliding_window\" is false");
    return SL_OK;
}

sl_status sl_layers_read_last_windows(const char *file, const sl_json *root, sl_model *model)
{
    int64_t first;
    bool by_types;
    SL_TRY(sl_layers_read_switched(file, root, 4096, model, &by_types));
    SL_TRY(sl_json_i64_or(file, root, "max_window_layers", 28, &first));
    if (first < 0)
        return sl_fail(SL_E_FORMAT, "%s: \"max_window_layers\" is %lld; it must not be negative", file,
                       (long long) first);
    for (int64_t i = first; i < model->layers && model->window && !by_types; i++)
        model->layer_flags[i] |= SL_LAYER_WINDOW;
    if (!sl_layers_windowed(model))
        model->window = 0;
    return SL_OK;
}

/* ---- writing ---- */

void sl_layers_write_same_window(const sl_model *model, sl_json_writer *w)
{
    if (model->window)
        sl_json_put_i64(w, "sliding_window", model->window);
    else
        sl_json_put_null(w, "sliding_window");
}

void sl_layers_write_types(const sl_model *model, sl_json_writer *w)
{
    sl_json_begin_array(w, "layer_types");
    for (int64_t i = 0; i < model->layers; i++)
        sl_json_put_string(w, NULL, sl_model_window(model, i) ? "sliding_attention" : "full_attention");
    sl_json_end_array(w);
}

void sl_layers_write_last_windows(const sl_model *model, sl_json_writer *w)
{
    int64_t first = 0;
    sl_json_put_bool(w, "use_sliding_window", model->window != 0);
    if (!model->window)
        return;
    while (!sl_model_window(model, first))
        first++;
    sl_json_put_i64(w, "sliding_window", model->window);
    sl_json_put_i64(w, "max_window_layers", first); /* for readers that do not know "layer_types" */
    sl_layers_write_types(model, w);
}
