/*
 * GPT-2: LayerNorm, biases everywhere, learned positions, GELU, the head tied to the embedding. Per layer, x (n, d):
 *
 *     h = layernorm(x)       qkv = h Wqkv^T + b  (n, 3d)
 *     x = x + attention(qkv) Wo^T + b
 *     h = layernorm(x)       x = x + gelu(h Wfc^T + b) Wproj^T + b
 *
 * With dropout the two residual additions become  x + dropout(...).
 * Hugging Face stores these matrices as [in, out] (Conv1D): transposed here. Projections back into the residual stream start
 * smaller by sqrt(2 layers), as in the paper.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/internal.h"
#include "ops/dropout.h"
#include "ops/gelu.h"
#include "ops/norm.h"

static sl_value norm(sl_forward *f, const char *name, const char *file_name, sl_value x)
{
    char weight[64], bias[64], file_weight[64], file_bias[64];
    sl_attrs attrs = {.raw = {0}};
    sl_norm_set(&attrs)->eps = f->model->norm_eps;
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    snprintf(file_weight, sizeof file_weight, "%s.weight", file_name);
    snprintf(file_bias, sizeof file_bias, "%s.bias", file_name);
    sl_value w = sl_forward_vector(f, weight, file_weight, f->model->dim, SL_INIT_ONES);
    sl_value b = sl_forward_vector(f, bias, file_bias, f->model->dim, SL_INIT_ZEROS);
    return sl_forward_op(f, SL_OP_LAYERNORM, name, &attrs, (const sl_value[]){x, w, b}, 3, NULL);
}

/* x W^T + b, with W and b declared on the way. */
static sl_value linear(sl_forward *f, const char *name, const char *file_name, int64_t out, int64_t in, float std,
                       sl_value x)
{
    char bias[64], file_weight[64], file_bias[64];
    snprintf(bias, sizeof bias, "%s.bias", name);
    snprintf(file_weight, sizeof file_weight, "%s.weight", file_name);
    snprintf(file_bias, sizeof file_bias, "%s.bias", file_name);
    sl_forward_param param = {.name = name,
                              .rows = out,
                              .columns = in,
                              .init = SL_INIT_NORMAL,
                              .std = std,
                              .decay = true,
                              .n_parts = 1,
                              .parts = {{file_weight, 0, out, true, 0}}};
    sl_value w = sl_forward_parameter(f, &param);
    sl_value b = sl_forward_vector(f, bias, file_bias, out, SL_INIT_ZEROS);
    return sl_forward_linear(f, name, x, w, b);
}

static sl_value dropout(sl_forward *f, const char *name, uint32_t stream, sl_value x)
{
    sl_attrs attrs = {.raw = {0}};
    sl_dropout_set(&attrs)->probability = f->model->dropout;
    sl_dropout_set(&attrs)->stream = stream;
    return sl_forward_op(f, SL_OP_DROPOUT, name, &attrs, (const sl_value[]){x, sl_forward_input(f, SL_INPUT_STEP)}, 2,
                         NULL);
}

static bool drops(const sl_forward *f)
{
    return f->graph->training && f->model->dropout > 0;
}

/* linear() onto the residual stream x. */
static sl_value project(sl_forward *f, const char *name, const char *file_name, int64_t in, uint32_t stream, sl_value h,
                        sl_value x)
{
    const sl_model *model = f->model;
    float std = model->init_std / (float) sqrt(2.0 * (double) model->layers);
    char node[48];
    h = linear(f, name, file_name, model->dim, in, std, h);
    snprintf(node, sizeof node, "%s_dropout", name);
    if (drops(f))
        h = dropout(f, node, stream, h);
    snprintf(node, sizeof node, "%s_add", name);
    return sl_forward_add(f, node, x, h);
}

static sl_value layer(sl_forward *f, uint32_t index, sl_value x)
{
    const sl_model *model = f->model;
    sl_attrs gelu = {.raw = {0}};
    sl_gelu_set(&gelu)->tanh = model->gelu_tanh;
    sl_forward_group(f, "attention");
    sl_value h = norm(f, "attention_norm", "ln_1", x);
    h = linear(f, "qkv", "attn.c_attn", 3 * model->dim, model->dim, model->init_std, h);
    h = sl_forward_attention(f, h);
    x = project(f, "o", "attn.c_proj", model->dim, 2 * index + 1, h, x);
    sl_forward_group(f, "mlp");
    h = norm(f, "mlp_norm", "ln_2", x);
    h = linear(f, "up", "mlp.c_fc", model->ffn, model->dim, model->init_std, h);
    h = sl_forward_op(f, SL_OP_GELU, "gelu", &gelu, &h, 1, NULL);
    return project(f, "down", "mlp.c_proj", model->ffn, 2 * index + 2, h, x);
}

static sl_value table(sl_forward *f, const char *name, const char *file_name, int64_t rows)
{
    return sl_forward_parameter(f, &(const sl_forward_param){.name = name,
                                                             .rows = rows,
                                                             .columns = f->model->dim,
                                                             .init = SL_INIT_NORMAL,
                                                             .std = f->model->init_std,
                                                             .decay = true,
                                                             .n_parts = 1,
                                                             .parts = {{file_name, 0, rows, false, 0}}});
}

static sl_value embed(sl_forward *f, sl_value *tokens_table)
{
    *tokens_table = table(f, "embedding", "wte.weight", f->model->vocab);
    sl_value positions_table = table(f, "positions", "wpe.weight", f->model->max_seqlen);
    sl_value token = sl_forward_op(f, SL_OP_EMBEDDING, "embedding", NULL,
                                   (const sl_value[]){*tokens_table, sl_forward_input(f, SL_INPUT_TOKENS)}, 2, NULL);
    sl_value position =
        sl_forward_op(f, SL_OP_EMBEDDING, "positions", NULL,
                      (const sl_value[]){positions_table, sl_forward_input(f, SL_INPUT_POSITIONS)}, 2, NULL);
    sl_value x = sl_forward_add(f, "embedding_add", token, position);
    return drops(f) ? dropout(f, "embedding_dropout", 0, x) : x;
}

static sl_status build(const sl_model *model, sl_graph *graph, sl_value *loss)
{
    sl_value head;
    sl_forward f = {.model = model, .graph = graph};
    sl_forward_block(&f, "embedding", "transformer");
    sl_value x = embed(&f, &head);
    for (int64_t i = 0; i < model->layers; i++) {
        sl_forward_layer(&f, i, "transformer.h");
        x = layer(&f, (uint32_t) i, x);
    }
    sl_forward_block(&f, "head", "");
    x = norm(&f, "norm", "transformer.ln_f", x);
    if (!model->tied)
        head = table(&f, "head", "lm_head.weight", model->vocab);
    *loss = sl_forward_head(&f, "loss", x, head);
    return f.status;
}

static int64_t parameters(const sl_model *model)
{
    int64_t d = model->dim, f = model->ffn;
    int64_t layer = d * (4 * d + 2 * f) + (4 * d + f + d) + 4 * d; /* matrices, their biases, two norms */
    return model->vocab * d * (model->tied ? 1 : 2) + model->max_seqlen * d + model->layers * layer + 2 * d;
}

/* ---- config.json ---- */

static const char *const known_keys[] = {"architectures",
                                         "model_type",
                                         "n_embd",
                                         "n_inner",
                                         "n_layer",
                                         "n_head",
                                         "n_positions",
                                         "n_ctx",
                                         "vocab_size",
                                         "tie_word_embeddings",
                                         "layer_norm_epsilon",
                                         "activation_function",
                                         "embd_pdrop",
                                         "resid_pdrop",
                                         "attn_pdrop",
                                         "initializer_range",
                                         NULL};
static sl_status read_activation(const char *file, const sl_json *root, sl_model *model)
{
    const char *name;
    SL_TRY(sl_json_string_or(file, root, "activation_function", "gelu_new", &name));
    model->gelu_tanh = strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0;
    if (!model->gelu_tanh && strcmp(name, "gelu") != 0)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: \"activation_function\" \"%s\" is not known; use gelu_new, gelu_pytorch_tanh or gelu", file,
                       name);
    return SL_OK;
}

static sl_status read_dropout(const char *file, const sl_json *root, sl_model *model)
{
    float embedding, attention;
    SL_TRY(sl_config_number(file, root, "resid_pdrop", 0.1, 0, 0.99, &model->dropout));
    SL_TRY(sl_config_number(file, root, "embd_pdrop", 0.1, 0, 0.99, &embedding));
    SL_TRY(sl_config_number(file, root, "attn_pdrop", 0.1, 0, 0.99, &attention));
    if (embedding != model->dropout)
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"embd_pdrop\" %g differs from \"resid_pdrop\" %g; one value serves both",
                       file, (double) embedding, (double) model->dropout);
    if (attention > 0)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: \"attn_pdrop\" is %g%s; dropout inside attention is not supported, only 0 is: write "
                       "\"attn_pdrop\": 0 to train without it",
                       file, (double) attention, sl_json_get(root, "attn_pdrop") ? "" : " unless it is given");
    return SL_OK;
}

static sl_status read_config(const char *file, const void *json_object, sl_model *model)
{
    const sl_json *root = json_object;
    int64_t context;
    SL_TRY(sl_config_check_keys(file, root, known_keys, NULL));
    SL_TRY(sl_config_count(file, root, "n_embd", 0, SL_MODEL_MAX_DIM, &model->dim));
    SL_TRY(sl_config_count(file, root, "n_inner", 4 * model->dim, SL_MODEL_MAX_DIM * 4, &model->ffn));
    SL_TRY(sl_config_count(file, root, "n_layer", 0, SL_MODEL_MAX_LAYERS, &model->layers));
    SL_TRY(sl_config_count(file, root, "n_head", 0, SL_MODEL_MAX_DIM, &model->heads));
    SL_TRY(sl_config_count(file, root, "vocab_size", 0, SL_MODEL_MAX_DIM, &model->vocab));
    SL_TRY(sl_config_count(file, root, "n_ctx", 1024, SL_MODEL_MAX_DIM, &context));
    SL_TRY(sl_config_count(file, root, "n_positions", context, SL_MODEL_MAX_DIM, &model->max_seqlen));
    if (model->dim % model->heads)
        return sl_fail(SL_E_FORMAT, "%s: \"n_embd\" %lld is no multiple of \"n_head\" %lld", file,
                       (long long) model->dim, (long long) model->heads);
    model->kv_heads = model->heads;
    model->head_dim = model->dim / model->heads;
    model->rope_style = SL_ROPE_NONE;
    SL_TRY(sl_json_bool_or(file, root, "tie_word_embeddings", true, &model->tied));
    SL_TRY(sl_config_number(file, root, "layer_norm_epsilon", 1e-5, 0, 1, &model->norm_eps));
    SL_TRY(sl_config_number(file, root, "initializer_range", 0.02, 1e-8, 100, &model->init_std));
    SL_TRY(read_activation(file, root, model));
    return read_dropout(file, root, model);
}

static void write_config(const sl_model *model, void *json_writer)
{
    sl_json_writer *w = json_writer;
    sl_config_put_family(w, model, "GPT2LMHeadModel");
    sl_json_put_i64(w, "n_embd", model->dim);
    sl_json_put_i64(w, "n_inner", model->ffn);
    sl_json_put_i64(w, "n_layer", model->layers);
    sl_json_put_i64(w, "n_head", model->heads);
    sl_json_put_i64(w, "n_positions", model->max_seqlen);
    sl_json_put_i64(w, "vocab_size", model->vocab);
    sl_json_put_string(w, "activation_function", model->gelu_tanh ? "gelu_new" : "gelu");
    sl_config_put(w, "layer_norm_epsilon", model->norm_eps);
    sl_json_put_bool(w, "tie_word_embeddings", model->tied);
    sl_config_put(w, "resid_pdrop", model->dropout);
    sl_config_put(w, "embd_pdrop", model->dropout);
    sl_config_put(w, "attn_pdrop", 0);
    sl_config_put(w, "initializer_range", model->init_std);
}

const sl_model_family sl_family_gpt2 = {
    .name = "gpt2",
    .build = build,
    .read_config = read_config,
    .write_config = write_config,
    .parameters = parameters,
    .ffn_matrices = 2,
};
