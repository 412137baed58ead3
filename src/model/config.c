/*
 * Hugging Face's config.json, read strictly: a key that we do not know could change the arithmetic, and a model that trains
 * with other arithmetic than its file says is worse than one that is refused. So every key is either understood, or on the
 * list of those that describe generation, tokenizers and bookkeeping, or an error that names it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "model/internal.h"

enum { CONFIG_LIMIT = 1 << 20 };

/* Keys of Hugging Face's base class that say nothing about training arithmetic. */
static const char *const base_keys[] = {"_name_or_path",
                                        "_attn_implementation",
                                        "_commit_hash",
                                        "transformers_version",
                                        "torch_dtype",
                                        "dtype",
                                        "use_cache",
                                        "bos_token_id",
                                        "eos_token_id",
                                        "pad_token_id",
                                        "sep_token_id",
                                        "cls_token_id",
                                        "decoder_start_token_id",
                                        "task_specific_params",
                                        "return_dict",
                                        "output_hidden_states",
                                        "output_attentions",
                                        "torchscript",
                                        "id2label",
                                        "label2id",
                                        "num_labels",
                                        "problem_type",
                                        "finetuning_task",
                                        "max_length",
                                        "min_length",
                                        "do_sample",
                                        "temperature",
                                        "top_k",
                                        "top_p",
                                        "num_beams",
                                        "repetition_penalty",
                                        "length_penalty",
                                        "no_repeat_ngram_size",
                                        "early_stopping",
                                        "tokenizer_class",
                                        "chunk_size_feed_forward",
                                        "is_decoder",
                                        "is_encoder_decoder",
                                        "unsloth_version",
                                        "license",
                                        "auto_map",
                                        "gradient_checkpointing",
                                        "output_past",
                                        "is_llama_config",
                                        "transformers.js_config",
                                        NULL};

static bool listed(const char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

sl_status sl_config_only(const char *file, const sl_json *object, const char *const *known, const char *const *harmless)
{
    for (const sl_json *member = object->child; member; member = member->next)
        if (!listed(known, member->key) && !listed(harmless, member->key) && !listed(base_keys, member->key))
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s:%d: key \"%s\" is not understood and could change what the model computes; remove it if "
                           "it does not",
                           file, member->line, member->key);
    return SL_OK;
}

sl_status sl_config_count(const char *file, const sl_json *object, const char *key, int64_t otherwise, int64_t limit,
                          int64_t *out)
{
    int64_t value;
    if (otherwise > 0)
        SL_TRY(sl_json_i64_or(file, object, key, otherwise, &value));
    else
        SL_TRY(sl_json_i64(file, object, key, &value));
    if (value < 1 || value > limit)
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" is %lld; it must lie between 1 and %lld", file, key, (long long) value,
                       (long long) limit);
    *out = value;
    return SL_OK;
}

sl_status sl_config_number(const char *file, const sl_json *object, const char *key, double otherwise, double least,
                           double most, float *out)
{
    double value;
    SL_TRY(sl_json_f64_or(file, object, key, otherwise, &value));
    if (!(value >= least && value <= most))
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" is %g; it must lie between %g and %g", file, key, value, least, most);
    *out = (float) value;
    return SL_OK;
}

sl_status sl_config_must_be_bool(const char *file, const sl_json *object, const char *key, bool want)
{
    bool value;
    SL_TRY(sl_json_bool_or(file, object, key, want, &value));
    if (value != want)
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"%s\" is %s; only %s is supported", file, key, value ? "true" : "false",
                       want ? "true" : "false");
    return SL_OK;
}

sl_status sl_config_must_be_string(const char *file, const sl_json *object, const char *key, const char *want)
{
    const char *value;
    SL_TRY(sl_json_string_or(file, object, key, want, &value));
    if (strcmp(value, want) != 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"%s\" is \"%s\"; only \"%s\" is supported", file, key, value, want);
    return SL_OK;
}

void sl_config_put(sl_json_writer *w, const char *key, float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double) value);
        if (strtof(text, NULL) == value)
            break;
    }
    sl_json_put_f64(w, key, strtod(text, NULL));
}

/* ---- files ---- */

static sl_status find_family(const char *file, const sl_json *root, const sl_model_family **out)
{
    static const sl_model_family *const families[] = {
#define SL_FAMILY(name) &sl_family_##name,
#include "model/families.def"
#undef SL_FAMILY
    };
    const char *type;
    SL_TRY(sl_json_string_or(file, root, "model_type", "", &type));
    for (int64_t i = 0; i < SL_COUNT(families); i++)
        if (strcmp(families[i]->name, type) == 0) {
            *out = families[i];
            return SL_OK;
        }
    static const char known[] = ""
#define SL_FAMILY(name) " " #name
#include "model/families.def"
#undef SL_FAMILY
        ;
    return sl_fail(SL_E_UNSUPPORTED, "%s: \"model_type\" is \"%s\"; supported are:%s", file, type, known);
}

sl_status sl_model_parse_config(const char *file, const char *text, size_t length, sl_model *model)
{
    sl_region *region;
    const sl_json *root;
    sl_model fresh = {0};
    sl_status status;
    SL_TRY(sl_region_create(&region));
    SL_TRY_GOTO(sl_json_parse(region, file, text, length, &root), destroy_region);
    if (root->kind != SL_JSON_OBJECT) {
        status = sl_fail(SL_E_FORMAT, "%s: a model's configuration is a JSON object", file);
        goto destroy_region;
    }
    SL_TRY_GOTO(find_family(file, root, &fresh.family), destroy_region);
    SL_TRY_GOTO(fresh.family->read_config(file, root, &fresh), destroy_region);
    snprintf(fresh.name, sizeof fresh.name, "%s", fresh.family->name);
    status = sl_model_check(&fresh);
    if (status == SL_OK)
        *model = fresh;
    else
        sl_fail_at(status, "%s", file);
destroy_region:
    sl_region_destroy(region);
    return status;
}

sl_status sl_model_read_config(const char *path, sl_model *model)
{
    char *text;
    size_t length;
    SL_TRY(sl_file_read_all(path, CONFIG_LIMIT, &text, &length));
    sl_status status = sl_model_parse_config(path, text, length, model);
    sl_free(text);
    return status;
}

sl_status sl_model_write_config(const sl_model *model, const char *path)
{
    sl_json_writer w = {.indent = true};
    sl_json_begin_object(&w, NULL);
    model->family->write_config(model, &w);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    sl_status status = sl_text_status(&w.text);
    if (status == SL_OK)
        status = sl_file_write_atomic(path, w.text.data, w.text.length);
    sl_text_free(&w.text);
    return status;
}
