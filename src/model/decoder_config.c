/* config.json of the families that decoder.c builds: Hugging Face's names for their dimensions, biases and initialization. */
#include <string.h>

#include "model/internal.h"

static const char *const known_keys[] = {"architectures",       "model_type",
                                         "hidden_size",         "intermediate_size",
                                         "num_hidden_layers",   "num_attention_heads",
                                         "num_key_value_heads", "head_dim",
                                         "vocab_size",          "max_position_embeddings",
                                         "tie_word_embeddings", "rms_norm_eps",
                                         "rope_theta",          "rope_scaling",
                                         "rope_parameters",     "original_max_position_embeddings",
                                         "hidden_act",          "initializer_range",
                                         "initializer_rule",    NULL};

static sl_status read_init(const char *file, const sl_json *root, sl_model *model)
{
    const char *rule;
    SL_TRY(sl_config_number(file, root, "initializer_range", 0.02, 1e-8, 100, &model->init_std));
    SL_TRY(sl_json_string_or(file, root, "initializer_rule", "normal", &rule));
    if (strcmp(rule, "glorot") == 0)
        model->init_std = 0;
    else if (strcmp(rule, "normal") != 0)
        return sl_fail(SL_E_FORMAT, "%s: \"initializer_rule\" is \"%s\"; \"normal\" and \"glorot\" are known", file,
                       rule);
    return SL_OK;
}

/* Unless it is given: the family's, or hidden_size / num_attention_heads. Where that leaves a remainder, readers differ: some cut
 * it off, some refuse. */
static sl_status read_head_dim(const char *file, const sl_json *root, int64_t otherwise, sl_model *model)
{
    const sl_json *given = sl_json_get(root, "head_dim");
    if (!otherwise && (!given || given->kind == SL_JSON_NULL) && model->dim % model->heads)
        return sl_fail(
            SL_E_USAGE,
            "%s: \"hidden_size\" %lld is no multiple of \"num_attention_heads\" %lld; correct one of them, or "
            "give \"head_dim\"",
            file, (long long) model->dim, (long long) model->heads);
    return sl_config_count(file, root, "head_dim", otherwise ? otherwise : SL_MAX(1, model->dim / model->heads),
                           SL_MODEL_MAX_DIM, &model->head_dim);
}

static sl_status read_kv_heads(const char *file, const sl_json *root, const sl_decoder_keys *keys, sl_model *model)
{
    const bool absent = !sl_json_get(root, "num_key_value_heads"); /* null: as many as heads, in every family */
    const int64_t otherwise = absent && keys->kv_heads ? keys->kv_heads : model->heads;
    return sl_config_count(file, root, "num_key_value_heads", keys->kv_heads_required && absent ? 0 : otherwise,
                           SL_MODEL_MAX_DIM, &model->kv_heads);
}

sl_status sl_decoder_read_config(const char *file, const sl_json *root, const sl_decoder_keys *keys, sl_model *model)
{
    int64_t positions;
    SL_TRY(sl_config_check_keys(file, root, known_keys, keys->own));
    SL_TRY(sl_config_count(file, root, "hidden_size", 0, SL_MODEL_MAX_DIM, &model->dim));
    SL_TRY(sl_config_count(file, root, "intermediate_size", 0, SL_MODEL_MAX_DIM, &model->ffn));
    SL_TRY(sl_config_count(file, root, "num_hidden_layers", 0, SL_MODEL_MAX_LAYERS, &model->layers));
    SL_TRY(sl_config_count(file, root, "num_attention_heads", keys->heads, SL_MODEL_MAX_DIM, &model->heads));
    SL_TRY(read_kv_heads(file, root, keys, model));
    SL_TRY(read_head_dim(file, root, keys->head_dim, model));
    SL_TRY(sl_config_count(file, root, "vocab_size", keys->vocab, SL_MODEL_MAX_DIM, &model->vocab));
    SL_TRY(sl_config_count(file, root, "max_position_embeddings",
                           keys->max_positions ? keys->max_positions : SL_DECODER_POSITIONS, INT32_MAX, &positions));
    if (sl_json_get(root, "max_position_embeddings"))
        model->max_positions = positions;
    SL_TRY(sl_json_bool_or(file, root, "tie_word_embeddings", keys->tied, &model->tied));
    SL_TRY(sl_config_number(file, root, "rms_norm_eps", keys->norm_eps > 0 ? (double) keys->norm_eps : 1e-6, 0, 1,
                            &model->norm_eps));
    model->rope_style = SL_ROPE_HALF;
    SL_TRY(sl_rope_read_config(file, root, keys, positions, model));
    SL_TRY(read_init(file, root, model));
    return sl_config_must_be_string(file, root, "hidden_act", keys->activation ? keys->activation : "silu");
}

sl_status sl_decoder_read_biases(const char *file, const sl_json *root, bool mlp, sl_model *model)
{
    SL_TRY(sl_json_bool_or(file, root, "attention_bias", false, &model->qkv_bias));
    model->o_bias = model->qkv_bias;
    return mlp ? sl_json_bool_or(file, root, "mlp_bias", false, &model->mlp_bias) : SL_OK;
}

void sl_decoder_write_biases(const sl_model *model, bool mlp, sl_json_writer *w)
{
    sl_json_put_bool(w, "attention_bias", model->qkv_bias);
    if (mlp)
        sl_json_put_bool(w, "mlp_bias", model->mlp_bias);
}

void sl_decoder_write_config(const sl_model *model, const sl_decoder_keys *keys, sl_json_writer *w)
{
    sl_config_put_family(w, model, keys->architecture);
    sl_json_put_i64(w, "hidden_size", model->dim);
    sl_json_put_i64(w, "intermediate_size", model->ffn);
    sl_json_put_i64(w, "num_hidden_layers", model->layers);
    sl_json_put_i64(w, "num_attention_heads", model->heads);
    sl_json_put_i64(w, "num_key_value_heads", model->kv_heads);
    sl_json_put_i64(w, "head_dim", model->head_dim);
    sl_json_put_i64(w, "vocab_size", model->vocab);
    if (model->max_positions)
        sl_json_put_i64(w, "max_position_embeddings", model->max_positions);
    sl_json_put_string(w, "hidden_act", keys->activation ? keys->activation : "silu");
    sl_config_put(w, "rms_norm_eps", model->norm_eps);
    sl_json_put_bool(w, "tie_word_embeddings", model->tied);
    sl_rope_write_config(model, keys, w);
    if (model->rope_style == SL_ROPE_INTERLEAVED)
        sl_json_put_string(w, "sluice_rope_order", "interleaved");
    if (model->init_std > 0)
        sl_config_put(w, "initializer_range", model->init_std);
    else
        sl_json_put_string(w, "initializer_rule", "glorot");
}
