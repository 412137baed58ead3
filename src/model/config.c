/*
 * Hugging Face's config.json. A model that trains with other arithmetic than its file says is worse than one that is refused, so
 * one rule holds for every key, of every family and of the objects inside:
 *
 *     a family computes with it             it is read
 *     it changes the result, and nothing    its neutral value (the one that switches it off) is accepted,
 *     here computes it                      any other is an error that names key and value
 *     it has no effect on arithmetic        ignored, listed with --verbose; kept for the checkpoints' config.json
 *     it is not known                       null is accepted (nothing is set), anything else is an error that names the key
 *
 * A key that is absent has Hugging Face's default, and falls under the same rule with it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/log.h"
#include "model/internal.h"

enum { CONFIG_LIMIT = 1 << 20 };

/* What no family here computes. `neutral`: false, 0, 1 or a string; an array is neutral when all it holds is, {} and null always. */
static const struct {
    const char *key, *neutral;
} unsupported[] = {
    {"attention_bias", "false"},
    {"qkv_bias", "false"},
    {"mlp_bias", "false"},
    {"attention_dropout", "0"},
    {"hidden_dropout", "0"},
    {"pretraining_tp", "1"},
    {"partial_rotary_factor", "1"},
    {"attention_factor", "1"},
    {"rope_interleave", "false"},
    {"no_rope_layers", "1"},
    {"sliding_window", "0"},
    {"use_sliding_window", "false"},
    {"layer_types", "full_attention"},
    {"attn_logit_softcapping", "0"},
    {"use_bidirectional_attention", "false"},
    {"final_logit_softcapping", "0"},
    {"logit_scale", "1"},
    {"logits_scaling", "1"},
    {"embedding_multiplier", "1"},
    {"residual_multiplier", "1"},
    {"resid_pdrop", "0"},
    {"embd_pdrop", "0"},
    {"use_mrope", "false"},
    {"lm_head_bias", "false"},
    {"full_attn_mod", "1"},
    {"interpolate_factor", "1"},
    {"use_qk_norm", "false"},
    {"qk_norm", "false"},
    {"clip_qkv", "0"},
    {"num_experts", "0"},
    {"num_local_experts", "0"},
    {"auto_map", "null"}, /* code of its own */
    {"pruned_heads", "null"},
    {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
    {"tie_encoder_decoder", "false"},
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
};

/* Keys without effect on training arithmetic: generation, tokens, labels, bookkeeping. */
static const char *const harmless_keys[] = {"bos_token_id",
                                            "eos_token_id",
                                            "pad_token_id",
                                            "sep_token_id",
                                            "cls_token_id",
                                            "decoder_start_token_id",
                                            "transformers_version",
                                            "transformers.js_config",
                                            "torch_dtype",
                                            "dtype",
                                            "use_cache",
                                            "cache_implementation",
                                            "task_specific_params",
                                            "return_dict",
                                            "use_return_dict",
                                            "output_hidden_states",
                                            "output_attentions",
                                            "torchscript",
                                            "use_bfloat16",
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
                                            "typical_p",
                                            "num_beams",
                                            "num_beam_groups",
                                            "num_return_sequences",
                                            "diversity_penalty",
                                            "repetition_penalty",
                                            "length_penalty",
                                            "no_repeat_ngram_size",
                                            "encoder_no_repeat_ngram_size",
                                            "early_stopping",
                                            "bad_words_ids",
                                            "suppress_tokens",
                                            "begin_suppress_tokens",
                                            "forced_bos_token_id",
                                            "forced_eos_token_id",
                                            "remove_invalid_values",
                                            "exponential_decay_length_penalty",
                                            "output_scores",
                                            "return_dict_in_generate",
                                            "prefix",
                                            "tokenizer_class",
                                            "chunk_size_feed_forward",
                                            "is_decoder",
                                            "license",
                                            "gradient_checkpointing",
                                            "output_past",
                                            "is_llama_config",
                                            "reorder_and_upcast_attn",
                                            "summary_activation",
                                            "summary_first_dropout",
                                            "summary_proj_to_labels",
                                            "summary_type",
                                            "summary_use_proj",
                                            NULL};
static const char *const harmless_prefixes[] = {"_", "unsloth_"};

/* Of the ignored keys, those that describe the file they came from: they do not hold for a new one. */
static const char *const not_kept[] = {"transformers_version", "torch_dtype", "dtype", NULL};

static bool listed(const char *const *list, const char *key)
{
    for (; *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

static bool is_harmless(const char *key)
{
    for (int64_t i = 0; i < SL_COUNT(harmless_prefixes); i++)
        if (strncmp(key, harmless_prefixes[i], strlen(harmless_prefixes[i])) == 0)
            return true;
    return listed(harmless_keys, key);
}

static bool is_neutral(const sl_json *value, const char *neutral)
{
    char *end;
    double number = strtod(neutral, &end);
    switch (value->kind) {
    case SL_JSON_NULL:
        return true;
    case SL_JSON_BOOL:
        return strcmp(neutral, value->boolean ? "true" : "false") == 0;
    case SL_JSON_NUMBER:
        return !*end && value->number == number;
    case SL_JSON_STRING:
        return strcmp(neutral, value->string) == 0;
    default:
        for (const sl_json *child = value->child; child; child = child->next)
            if (value->kind == SL_JSON_OBJECT || !is_neutral(child, neutral))
                return false;
        return true;
    }
}

static sl_status refuse_value(const char *file, const sl_json *member, const char *neutral)
{
    sl_json_writer w = {0};
    sl_json_put_value(&w, NULL, member);
    sl_status status = sl_text_status(&w.text);
    if (status == SL_OK)
        status = sl_fail(SL_E_UNSUPPORTED, "%s:%d: \"%s\" is %.60s; that is not supported, only %s is", file,
                         member->line, member->key, w.text.data, neutral);
    sl_text_free(&w.text);
    return status;
}

static sl_status check_key(const char *file, const sl_json *member)
{
    for (int64_t i = 0; i < SL_COUNT(unsupported); i++)
        if (strcmp(unsupported[i].key, member->key) == 0)
            return is_neutral(member, unsupported[i].neutral) ? SL_OK
                                                              : refuse_value(file, member, unsupported[i].neutral);
    if (strcmp(member->key, "quantization_config") == 0)
        return sl_config_check_quantization(file, member);
    if (is_harmless(member->key)) {
        sl_debug("%s:%d: key \"%s\" does not change what the model computes and is ignored", file, member->line,
                 member->key);
        return SL_OK;
    }
    if (member->kind == SL_JSON_NULL)
        return SL_OK;
    return sl_fail(SL_E_UNSUPPORTED,
                   "%s:%d: key \"%s\" is not understood and could change what the model computes; remove it if it "
                   "does not",
                   file, member->line, member->key);
}

sl_status sl_config_check_keys(const char *file, const sl_json *object, const char *const *known,
                               const char *const *own)
{
    for (const sl_json *member = object->child; member; member = member->next)
        if (!listed(known, member->key) && !(own && listed(own, member->key)))
            SL_TRY(check_key(file, member));
    return SL_OK;
}

/* ---- keys kept for others ---- */

/* Is it one for `pass`? The ids of special tokens go first: they matter most, and what is kept has an end. */
static bool is_kept(const sl_json *member, bool ids)
{
    size_t length = strlen(member->key);
    bool id = length > 9 && strcmp(member->key + length - 9, "_token_id") == 0;
    return member->key[0] != '_' && is_harmless(member->key) && !listed(not_kept, member->key) && id == ids;
}

/* Adds a member to the text of an object, or leaves the text as it was. */
static sl_status keep(char kept[SL_MODEL_KEPT_BYTES], const sl_json *member, const char *file)
{
    sl_json_writer w = {0};
    size_t used = strlen(kept);
    sl_json_begin_object(&w, NULL);
    sl_json_put_value(&w, member->key, member);
    sl_json_end_object(&w);
    sl_status status = sl_text_status(&w.text);
    if (status == SL_OK && used + w.text.length < SL_MODEL_KEPT_BYTES) {
        memcpy(kept + used, w.text.data, w.text.length + 1);
        if (used) /* {"a":1}{"b":2} -> {"a":1,"b":2} */
            memmove(kept + used, kept + used + 1, w.text.length), kept[used - 1] = ',';
    } else if (status == SL_OK)
        sl_info("%s: key \"%s\" is too long to be kept in the checkpoints' config.json", file, member->key);
    sl_text_free(&w.text);
    return status;
}

static sl_status keep_members(const char *file, const sl_json *root, sl_model *model)
{
    for (int pass = 0; pass < 2; pass++)
        for (const sl_json *member = root->child; member; member = member->next)
            if (is_kept(member, pass == 0))
                SL_TRY(keep(model->kept, member, file));
    return SL_OK;
}

static sl_status put_kept(const sl_model *model, sl_json_writer *w)
{
    sl_region *region;
    const sl_json *root;
    if (!model->kept[0])
        return SL_OK;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_json_parse(region, "kept keys", model->kept, strlen(model->kept), &root);
    for (const sl_json *member = status == SL_OK ? root->child : NULL; member; member = member->next)
        sl_json_put_value(w, member->key, member);
    sl_region_destroy(region);
    return status;
}

/* ---- values ---- */

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

sl_status sl_config_must_be_string(const char *file, const sl_json *object, const char *key, const char *want)
{
    const char *value;
    SL_TRY(sl_json_string_or(file, object, key, want, &value));
    if (strcmp(value, want) != 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"%s\" is \"%s\"; only \"%s\" is supported", file, key, value, want);
    return SL_OK;
}

double sl_config_decimal(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double) value);
        if (strtof(text, NULL) == value)
            break;
    }
    return strtod(text, NULL);
}

void sl_config_put(sl_json_writer *w, const char *key, float value)
{
    sl_json_put_real(w, key, sl_config_decimal(value)); /* transformers 5 refuses 30 where it expects 30.0 */
}

void sl_config_put_family(sl_json_writer *w, const sl_model *model, const char *architecture)
{
    sl_json_begin_array(w, "architectures");
    sl_json_put_string(w, NULL, architecture);
    sl_json_end_array(w);
    sl_json_put_string(w, "model_type", model->family->name);
}

/* ---- files ---- */

static sl_status find_family(const char *file, const char *type, const sl_model_family **out)
{
    static const sl_model_family *const families[] = {
#define SL_FAMILY(name) &sl_family_##name,
#include "model/families.def"
#undef SL_FAMILY
    };
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
    const char *type;
    sl_model fresh = {0};
    sl_status status;
    SL_TRY(sl_region_create(&region));
    text = sl_json_after_mark(text, &length);
    SL_TRY_GOTO(sl_json_parse(region, file, text, length, &root), destroy_region);
    if (root->kind != SL_JSON_OBJECT) {
        status = sl_fail(SL_E_FORMAT, "%s: a model's configuration is a JSON object", file);
        goto destroy_region;
    }
    SL_TRY_GOTO(sl_config_enter_text(file, &root, &type), destroy_region);
    SL_TRY_GOTO(find_family(file, type, &fresh.family), destroy_region);
    SL_TRY_GOTO(fresh.family->read_config(file, root, &fresh), destroy_region);
    SL_TRY_GOTO(keep_members(file, root, &fresh), destroy_region);
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

static sl_status write_text(const sl_model *model, const char *dtype, sl_text *out)
{
    sl_json_writer w = {.indent = true};
    sl_json_begin_object(&w, NULL);
    model->family->write_config(model, &w);
    if (dtype)
        sl_json_put_string(&w, "torch_dtype", dtype);
    sl_status status = put_kept(model, &w);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    if (status == SL_OK)
        status = sl_text_status(&w.text);
    if (status == SL_OK)
        *out = w.text;
    else
        sl_text_free(&w.text);
    return status;
}

sl_status sl_model_config_text(const sl_model *model, sl_text *out)
{
    return write_text(model, NULL, out);
}

sl_status sl_model_write_config_with(const sl_model *model, const char *dtype, const char *path)
{
    sl_text text;
    SL_TRY(write_text(model, dtype, &text));
    sl_status status = sl_file_write_atomic(path, text.data, text.length);
    sl_text_free(&text);
    return status;
}

sl_status sl_model_write_config(const sl_model *model, const char *path)
{
    return sl_model_write_config_with(model, NULL, path);
}
