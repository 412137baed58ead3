/*
 * A model of your own: Llama's layer with a norm of queries and keys, and attention and MLP side by side instead of
 * one after the other, so that both read the same normed input:
 *
 *     h = rmsnorm(x)         x = x + attention(qk_norm(h Wqkv^T)) Wo^T + swiglu(h Wgu^T) Wdown^T
 *
 *     cc own_model.c -o own_model $(pkg-config --cflags --libs sluice)
 *     ./own_model data corpus/                           # any folder of text
 *     ./own_model data corpus/ device-mem 4MiB out runs/mine checkpoint-every 50
 *     ./own_model data corpus/ resume true out runs/mine steps 400
 */
#include <sluice/model.h>

#include <math.h>
#include <stdio.h>

typedef struct config {
    int64_t layers, dim, ffn, vocab;
    int32_t heads, kv_heads, head_dim;
} config;

/* ---- the forward pass ---- */

static sl_var matrix(sl_builder *b, const char *name, int64_t rows, int64_t columns)
{
    float std = (float) sqrt(1.0 / (double) columns);
    return sl_build_parameter(
        b, SL_PARAMETER(.name = name, .rows = rows, .columns = columns, .init = SL_INIT_TRUNCATED, .std = std));
}

static sl_var linear(sl_builder *b, const char *name, const char *weight, sl_var x, int64_t columns)
{
    sl_var w = matrix(b, weight, columns, sl_build_columns(b, x));
    return sl_build_linear(b, name, x, w, (sl_var){0});
}

static sl_var ones(sl_builder *b, const char *name, int64_t count)
{
    return sl_build_parameter(b, SL_PARAMETER(.name = name, .rows = count, .init = SL_INIT_ONES));
}

static sl_var norm(sl_builder *b, const char *name, const char *weight, sl_var x)
{
    return sl_build_rmsnorm(b, name, x, ones(b, weight, sl_build_columns(b, x)), 1e-5f);
}

static sl_var attention(sl_builder *b, const config *c, sl_var h)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    /* One multiplication for all three; files hold them apart. */
    sl_var w = sl_build_parameter(
        b, SL_PARAMETER(.name = "qkv", .rows = q + 2 * kv, .columns = c->dim, .init = SL_INIT_TRUNCATED,
                        .std = (float) sqrt(1.0 / (double) c->dim),
                        .parts = {{"q_proj.weight", q, 0}, {"k_proj.weight", kv, 0}, {"v_proj.weight", kv, 0}}));
    sl_var qkv = sl_build_linear(b, "qkv", h, w, (sl_var){0});
    sl_var q_norm = ones(b, "q_norm.weight", c->head_dim), k_norm = ones(b, "k_norm.weight", c->head_dim);
    qkv = sl_build_qk_norm(b, "qk_norm", qkv, q_norm, k_norm, c->heads, c->kv_heads, 1e-5f);
    sl_var o = sl_build_attention(
        b, "attention", qkv,
        SL_ATTENTION(.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim, .rope_theta = 10000));
    return linear(b, "o", "o_proj.weight", o, c->dim);
}

static sl_var mlp(sl_builder *b, const config *c, sl_var h)
{
    h = linear(b, "gate_up", "gate_up.weight", h, 2 * c->ffn);
    return linear(b, "down", "down.weight", sl_build_swiglu(b, "swiglu", h), c->dim);
}

static sl_status build(void *user, sl_builder *b)
{
    const config *c = user;
    sl_build_block(b, "embedding", "model");
    sl_var x = sl_build_embedding(b, "embed", matrix(b, "embed.weight", c->vocab, c->dim), sl_build_tokens(b));
    for (int64_t i = 0; i < c->layers; i++) {
        sl_build_layer(b, i, "model.layers");
        sl_build_group(b, "attention");
        sl_var h = norm(b, "norm", "norm.weight", x);
        sl_var a = attention(b, c, h);
        sl_build_group(b, "mlp");
        x = sl_build_add(b, "add_attention", x, a);
        x = sl_build_add(b, "add_mlp", x, mlp(b, c, h));
    }
    sl_build_block(b, "head", "");
    x = norm(b, "norm", "norm.weight", x);
    sl_build_loss(b, "loss", x, matrix(b, "head.weight", c->vocab, c->dim), 1);
    return SL_OK; /* mistakes are kept by the builder */
}

/* ---- a run ---- */

static sl_status describe(sl_job *job, config *c, int count, char **options)
{
    static const char *const defaults[][2] = {
        {"seqlen", "128"}, {"tokens-per-step", "2048"}, {"steps", "200"}, {"lr", "1e-3"}};
    char identity[100];
    sl_status status = SL_OK;
    /* All that the graph depends on: a checkpoint of another configuration is not resumed. */
    snprintf(identity, sizeof identity, "parallel-llama 1: %lld layers, %lld, %lld, %d/%d x %d", (long long) c->layers,
             (long long) c->dim, (long long) c->ffn, c->heads, c->kv_heads, c->head_dim);
    sl_model_def model = SL_SIZED(sl_model_def);
    model.name = "parallel-llama";
    model.identity = identity;
    model.vocab = c->vocab;
    model.build = build;
    model.user = c;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && status == SL_OK; i++)
        status = sl_job_set(job, defaults[i][0], defaults[i][1]);
    for (int i = 0; i + 1 < count && status == SL_OK; i += 2)
        status = sl_job_set(job, options[i], options[i + 1]);
    return status == SL_OK ? sl_job_set_model(job, &model) : status;
}

static sl_status train(const sl_job *job, sl_trainer **trainer)
{
    sl_step_result step = SL_SIZED(sl_step_result);
    sl_status status = sl_trainer_create(job, trainer);
    while (status == SL_OK && !step.done) {
        status = sl_trainer_step(*trainer, &step);
        if (status == SL_OK && (step.done || step.step % 10 == 0))
            printf("step %lld: loss %.6f\n", (long long) step.step, step.loss);
    }
    return status;
}

int main(int argc, char **argv)
{
    config c = {.layers = 3, .dim = 96, .ffn = 256, .vocab = 256, .heads = 6, .kv_heads = 2, .head_dim = 16};
    sl_job *job = NULL;
    sl_trainer *trainer = NULL;
    sl_status status = sl_job_create(&job);
    if (status == SL_OK)
        status = describe(job, &c, argc - 1, argv + 1);
    if (status == SL_OK)
        status = train(job, &trainer);
    if (status != SL_OK)
        fprintf(stderr, "%s\n", sl_error_message());
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    return status != SL_OK;
}
