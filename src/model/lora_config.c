/*
 * adapter_config.json. PEFT knows many kinds of adapters and variants of LoRA; most of their keys stand in every file with a value that
 * says "not used". The rule is that of config.json: a key that changes what the adapter computes must have the value that leaves it
 * alone, or the file is refused with the key's name; a key that nobody here knows and that is neither null, false nor empty is refused
 * as well, since nobody can say what it changes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "model/internal.h"

enum { LARGEST_FILE = 1 << 20 };

/* Keys that say nothing about the arithmetic, whatever their value. */
static const char *const without_effect[] = {"auto_mapping",
                                             "base_model_name_or_path",
                                             "revision",
                                             "task_type",
                                             "inference_mode",
                                             "peft_version",
                                             "megatron_core",
                                             "init_lora_weights",
                                             "eva_config",
                                             "ephemeral_gpu_offload",
                                             "runtime_config",
                                             "qalora_group_size",
                                             "ensure_weight_tying",
                                             NULL};
/* Those that are read below. */
static const char *const known[] = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "fan_in_fan_out", "target_modules", "bias", NULL};

static bool is_listed(const char *const *list, const char *key)
{
    while (*list && strcmp(*list, key) != 0)
        list++;
    return *list != NULL;
}

static bool says_nothing(const sl_json *value)
{
    return value->kind == SL_JSON_NULL || (value->kind == SL_JSON_BOOL && !value->boolean) ||
           ((value->kind == SL_JSON_ARRAY || value->kind == SL_JSON_OBJECT) && !value->count);
}

static sl_status check_keys(const char *file, const sl_json *root)
{
    for (const sl_json *value = root->child; value; value = value->next)
        if (!is_listed(without_effect, value->key) && !is_listed(known, value->key) && !says_nothing(value))
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s: \"%s\" is set, which changes the adapter in a way that is not supported: only plain "
                           "LoRA of linear layers is",
                           file, value->key);
    return sl_config_must_be_string(file, root, "peft_type", "LORA");
}

/* Some initializations subtract the first adapter from the base model: then it is another base that the adapter belongs to. */
static sl_status check_initialization(const char *file, const sl_json *root)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal", NULL};
    const sl_json *how = sl_json_get(root, "init_lora_weights");
    if (!how || how->kind != SL_JSON_STRING || is_listed(plain, how->string))
        return SL_OK;
    return sl_fail(
        SL_E_UNSUPPORTED,
        "%s: \"init_lora_weights\" is \"%s\", which changes the base model too; convert the adapter to a plain "
        "one with PEFT first",
        file, how->string);
}

/* "mlp.up_proj" of "model.layers.3.mlp.up_proj"; a name without a layer's number as it is. */
static const char *behind_layer(const char *name)
{
    const char *behind = name;
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        const size_t digits = strspn(dot + 1, "0123456789");
        if (digits && dot[1 + digits] == '.')
            behind = dot + 2 + digits;
    }
    return behind;
}

/* Adds a name to the list, once; `lora->modules` counts those that were given with a layer. */
static sl_status add_target(const char *file, const sl_json *item, sl_lora *lora, int64_t *bare)
{
    const char *name = item->kind == SL_JSON_STRING ? behind_layer(item->string) : "";
    const size_t used = strlen(lora->targets);
    char listed[SL_LORA_TARGETS];
    if (!name[0] || strlen(item->string) != item->length || strpbrk(name, ", \t\r\n"))
        return sl_fail(SL_E_FORMAT, "%s: \"target_modules\" holds something that is no module's name", file);
    *bare += name == item->string;
    lora->modules += name != item->string;
    for (const char *list = lora->targets; sl_next_item(&list, listed, sizeof listed);)
        if (strcmp(listed, name) == 0)
            return SL_OK;
    if (used + 1 + strlen(name) >= sizeof lora->targets)
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"target_modules\" has more than %zu bytes of different names", file,
                       sizeof lora->targets - 1);
    snprintf(lora->targets + used, sizeof lora->targets - used, "%s%s", used ? "," : "", name);
    return SL_OK;
}

static sl_status read_targets(const char *file, const sl_json *root, sl_lora *lora)
{
    const sl_json *targets = sl_json_get(root, "target_modules");
    int64_t bare = 0;
    if (targets && targets->kind == SL_JSON_STRING && strcmp(targets->string, SL_LORA_ALL) == 0) {
        snprintf(lora->targets, sizeof lora->targets, "%s", SL_LORA_ALL);
        return SL_OK;
    }
    if (targets && targets->kind == SL_JSON_STRING)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: \"target_modules\" is the pattern \"%s\"; only a list of names is supported: write out the "
                       "modules' last names",
                       file, targets->string);
    for (const sl_json *item = targets ? targets->child : NULL; item; item = item->next)
        SL_TRY(add_target(file, item, lora, &bare));
    if (!lora->targets[0])
        return sl_fail(SL_E_FORMAT, "%s: \"target_modules\" is missing or empty: no layer has an adapter", file);
    if (bare && lora->modules)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: \"target_modules\" names some modules with their layer and some without; write all of them "
                       "without",
                       file);
    return SL_OK;
}

static sl_status read_members(const char *file, const sl_json *root, sl_lora *lora)
{
    double dropout;
    SL_TRY(check_keys(file, root));
    SL_TRY(check_initialization(file, root));
    SL_TRY(sl_config_must_be_string(file, root, "bias", "none"));
    SL_TRY(sl_config_count(file, root, "r", 0, SL_LORA_MOST_RANK, &lora->rank));
    SL_TRY(sl_json_f64_or(file, root, "lora_alpha", 8, &lora->alpha));
    SL_TRY(sl_json_f64_or(file, root, "lora_dropout", 0, &dropout));
    SL_TRY(sl_json_bool_or(file, root, "use_rslora", false, &lora->rank_stabilized));
    SL_TRY(sl_json_bool_or(file, root, "fan_in_fan_out", false, &lora->transposed));
    if (!(lora->alpha > 0 && lora->alpha <= 1e6))
        return sl_fail(SL_E_FORMAT, "%s: \"lora_alpha\" is %g; it must be above 0 and at most 1e6", file, lora->alpha);
    if (!(dropout >= 0 && dropout < 1))
        return sl_fail(SL_E_FORMAT, "%s: \"lora_dropout\" is %g; it must lie in [0, 1)", file, dropout);
    lora->dropout = (float) dropout;
    return read_targets(file, root, lora);
}

sl_status sl_lora_parse_config(const char *file, const char *text, size_t length, sl_lora *out)
{
    sl_region *region;
    const sl_json *root;
    sl_lora lora = {.rank = 0};
    SL_TRY(sl_region_create(&region));
    text = sl_json_after_mark(text, &length);
    sl_status status = sl_json_parse(region, file, text, length, &root);
    if (status == SL_OK && root->kind != SL_JSON_OBJECT)
        status = sl_fail(SL_E_FORMAT, "%s is no JSON object", file);
    if (status == SL_OK)
        status = read_members(file, root, &lora);
    if (status == SL_OK)
        *out = lora;
    sl_region_destroy(region);
    return status;
}

sl_status sl_lora_read_config(const char *path, sl_lora *lora)
{
    char *text = NULL;
    size_t length = 0;
    SL_TRY(sl_file_read_all(path, LARGEST_FILE, &text, &length));
    sl_status status = sl_lora_parse_config(path, text, length, lora);
    sl_free(text);
    return status;
}

/* ---- writing ---- */

static void put_names(sl_json_writer *w, const char *key, const char *names)
{
    char item[SL_LORA_TARGETS];
    sl_json_begin_array(w, key);
    while (sl_next_item(&names, item, sizeof item))
        sl_json_put_string(w, NULL, item);
    sl_json_end_array(w);
}

/* PEFT's readers expect an integer where it is one. */
static void put_alpha(sl_json_writer *w, double alpha)
{
    if (alpha == floor(alpha))
        sl_json_put_i64(w, "lora_alpha", (int64_t) alpha);
    else
        sl_json_put_f64(w, "lora_alpha", alpha);
}

static bool has_transposed(const sl_param *params, int32_t n_params)
{
    for (int32_t p = 0; p < n_params; p++)
        for (int i = 0; i < params[p].n_parts; i++)
            if (params[p].parts[i].transposed)
                return true;
    return false;
}

sl_status sl_lora_config_text(const sl_lora *lora, const sl_param *params, int32_t n_params, const char *base,
                              sl_text *out)
{
    sl_json_writer w = {.indent = true};
    sl_text modules = {0};
    if (strcmp(lora->targets, SL_LORA_ALL) == 0)
        sl_lora_modules(params, n_params, &modules);
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "peft_type", "LORA");
    sl_json_put_string(&w, "task_type", "CAUSAL_LM");
    sl_json_put_string(&w, "base_model_name_or_path", base);
    sl_json_put_i64(&w, "r", lora->rank);
    put_alpha(&w, lora->alpha);
    sl_config_put(&w, "lora_dropout", lora->dropout);
    put_names(&w, "target_modules", modules.length ? modules.data : lora->targets);
    sl_json_put_string(&w, "bias", "none");
    sl_json_put_bool(&w, "fan_in_fan_out", has_transposed(params, n_params));
    sl_json_put_bool(&w, "use_rslora", lora->rank_stabilized);
    sl_json_put_bool(&w, "use_dora", false);
    sl_json_put_bool(&w, "init_lora_weights", true);
    sl_json_put_bool(&w, "inference_mode", true);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    sl_status status = sl_text_status(&modules);
    sl_text_free(&modules);
    *out = w.text;
    return status == SL_OK ? sl_text_status(out) : status;
}
