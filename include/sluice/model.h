/*
 * Models of your own: a callback writes the forward pass with the functions below, and everything else follows from
 * it. The backward, the plan, budgets, precision, optimizers, checkpoints and resumes are those of built-in models.
 *
 *     static sl_status build(void *user, sl_builder *b)
 *     {
 *         sl_build_block(b, "embedding", "model");
 *         sl_var table = sl_build_parameter(b, SL_PARAMETER(.name = "embed.weight", .rows = VOCAB, .columns = DIM,
 *                                                           .init = SL_INIT_NORMAL, .std = 0.02f));
 *         sl_var x = sl_build_embedding(b, "embed", table, sl_build_tokens(b));
 *         ...
 *         sl_build_loss(b, "loss", x, head, 1);
 *         return SL_OK;
 *     }
 *
 * Rules:
 *  - A graph describes one chunk of n tokens, which may hold several sequences or a slice of one. Activations are
 *    matrices with a row for each token. No op but attention looks at other tokens, so a model need not know n.
 *  - The first mistake is kept: later calls do nothing and return {0}, and whoever needed the graph gets SL_E_USAGE
 *    and a message that names op, operand and shapes. A callback therefore checks nothing. What it returns itself is
 *    passed on with its message.
 *  - The callback runs several times, for chunks of different lengths and for validation. It must describe the same
 *    model each time. It may run until the plan or trainer is destroyed.
 *  - Layers are blocks: all chunks of a step run through one block before the next begins, so that its parameters are
 *    moved once. Give every layer a block of its own.
 */
#ifndef SLUICE_MODEL_H
#define SLUICE_MODEL_H

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_builder sl_builder;
/* A tensor of the graph that is being built; {0} is none. Valid until the callback returns. */
typedef struct sl_var {
    uint64_t id;
} sl_var;

typedef struct sl_model_def {
    size_t struct_size;
    const char *name;     /* in reports, at most 63 bytes */
    const char *identity; /* at most 127 bytes: differs wherever the graph does. A resume needs the same */
    int64_t vocab;        /* tokens of the data lie below it */
    int64_t max_seqlen;   /* rows of learned positions; 0: any length */
    sl_status (*build)(void *user, sl_builder *builder);
    void *user;
} sl_model_def;

/* Instead of the option `model`. The job keeps a copy. NULL: that option again. */
SL_API sl_status sl_job_set_model(sl_job *job, const sl_model_def *model);

/* ---- blocks and parameters -------------------------------------------------------------------------------------- */

/* Begins a block. `prefix` and a dot stand in front of the names of its parameters and ops; "" for none. Names and
 * prefixes have at most 63 bytes. */
SL_API void sl_build_block(sl_builder *b, const char *name, const char *prefix);
/* The block "layers.<index>" with the prefix "<prefix>.<index>". */
SL_API void sl_build_layer(sl_builder *b, int64_t index, const char *prefix);
/* The parameters that follow are moved and updated together, apart from the block's others. Two groups in a layer suit
 * most models. */
SL_API void sl_build_group(sl_builder *b, const char *name);

typedef enum sl_initializer {
    SL_INIT_ZEROS,
    SL_INIT_ONES,
    SL_INIT_NORMAL,    /* mean 0, standard deviation std */
    SL_INIT_TRUNCATED, /* the same, cut at three standard deviations */
    SL_INIT_UNIFORM    /* mean 0, standard deviation std, and nothing beyond sqrt(3) of them */
} sl_initializer;

/* Rows of a parameter that are a tensor in files: q, k and v of one matrix, which is multiplied at once. */
typedef struct sl_parameter_part {
    const char *name;
    int64_t rows;
    int transposed; /* [columns, rows] there */
} sl_parameter_part;
#define SL_PARAMETER_PARTS 3

typedef struct sl_parameter_def {
    size_t struct_size;
    const char *name;      /* in options such as `freeze`, and in files unless there are parts */
    int64_t rows, columns; /* columns 0: a vector */
    sl_initializer init;
    float std;
    int frozen;
    int no_decay;                                /* of a matrix; vectors have no weight decay */
    sl_parameter_part parts[SL_PARAMETER_PARTS]; /* one below the other, all rows; none: a tensor of its name */
} sl_parameter_def;
#define SL_PARAMETER(...) (&(sl_parameter_def){.struct_size = sizeof(sl_parameter_def), __VA_ARGS__})

/* A name can be declared once: to share a parameter, use its value again, in any block. */
SL_API sl_var sl_build_parameter(sl_builder *b, const sl_parameter_def *parameter);

/* ---- ops: n tokens, in order ------------------------------------------------------------------------------------ */

SL_API sl_var sl_build_tokens(sl_builder *b);    /* [n] indices below vocab */
SL_API sl_var sl_build_positions(sl_builder *b); /* [n] place of each token in its sequence or document */
/* Columns of an activation or parameter; 0 after a mistake. */
SL_API int64_t sl_build_columns(sl_builder *b, sl_var x);

/* Rows of table [rows, d] -> [n, d]. `indices`: tokens or positions. */
SL_API sl_var sl_build_embedding(sl_builder *b, const char *name, sl_var table, sl_var indices);
/* x [n, k] W^T + bias -> [n, m]; weight [m, k], bias [m] or {0}. */
SL_API sl_var sl_build_linear(sl_builder *b, const char *name, sl_var x, sl_var weight, sl_var bias);
/* Over rows; weight [columns] and bias [columns]. */
SL_API sl_var sl_build_rmsnorm(sl_builder *b, const char *name, sl_var x, sl_var weight, float eps);
SL_API sl_var sl_build_layernorm(sl_builder *b, const char *name, sl_var x, sl_var weight, sl_var bias, float eps);

/* How the frequencies of a rotation are changed for sequences longer than those a model was first trained on (its original context). A
 * factor of 0 or 1 changes nothing. */
typedef enum sl_rope_scaling {
    SL_ROPE_LLAMA3, /* by the turns of a pair within the original context: few / factor, many as they are, a blend between */
    SL_ROPE_LINEAR,  /* all / factor */
    SL_ROPE_DYNAMIC, /* theta grows with the length of sequences beyond the original context */
    SL_ROPE_YARN,    /* as llama3, but the blend is linear in the number of the pair */
    SL_ROPE_LONG,    /* every pair / a factor of its own, for short and for long sequences */
} sl_rope_scaling;

/* qkv [n, (heads + 2 kv_heads) head_dim]: the heads of q, of k, of v side by side. */
typedef struct sl_attention_def {
    size_t struct_size;
    int32_t heads, kv_heads, head_dim; /* heads is a multiple of kv_heads */
    /* Rotation of q and k by position, halves of a head against each other; 0: none. */
    float rope_theta;
    int32_t rope_elements;                             /* the first elements of a head that are rotated; 0: all */
    float rope_factor;                                 /* of rope_scaling; 0: none */
    float rope_low_freq_factor, rope_high_freq_factor; /* turns below which and above which pairs are few and many */
    int32_t rope_original_context;
    float scale;    /* of scores; 0: 1 / sqrt(head_dim) */
    int64_t window; /* tokens that one sees, itself included; 0: all before it */
    float cap;      /* scores become cap * tanh(score / cap); 0: they stay */
    sl_rope_scaling rope_scaling;
    float rope_magnitude; /* what is rotated is multiplied by it; 0: 1 */
    int rope_exact_ramp;  /* yarn: the blend begins and ends between pairs (transformers' "truncate": false) */
    const float
        *rope_factors; /* long: of each rotated pair, for sequences within the original context, then for longer ones */
} sl_attention_def;
#define SL_ATTENTION(...) (&(sl_attention_def){.struct_size = sizeof(sl_attention_def), __VA_ARGS__})

/* Causal attention within sequences (and documents) -> [n, heads * head_dim]. */
SL_API sl_var sl_build_attention(sl_builder *b, const char *name, sl_var qkv, const sl_attention_def *attention);
/* RMSNorm of every head of q and of k -> qkv again. q_weight and k_weight [head_dim]. */
SL_API sl_var sl_build_qk_norm(sl_builder *b, const char *name, sl_var qkv, sl_var q_weight, sl_var k_weight,
                               int32_t heads, int32_t kv_heads, float eps);
/* [n, 2f] (gate beside up) -> silu(gate) * up [n, f] */
SL_API sl_var sl_build_swiglu(sl_builder *b, const char *name, sl_var gate_up);
SL_API sl_var sl_build_gelu(sl_builder *b, const char *name, sl_var x, int tanh_approximation);
SL_API sl_var sl_build_add(sl_builder *b, const char *name, sl_var x, sl_var y);
SL_API sl_var sl_build_mul(sl_builder *b, const char *name, sl_var x, sl_var y); /* by elements */
SL_API sl_var sl_build_scale(sl_builder *b, const char *name, sl_var x, float factor);
/* Columns [first, first + columns). */
SL_API sl_var sl_build_slice(sl_builder *b, const char *name, sl_var x, int64_t first, int64_t columns);
/* Two to four, side by side. */
SL_API sl_var sl_build_concat(sl_builder *b, const char *name, const sl_var *x, int count);
/* [n, d] -> [n * d / columns, columns], and back: rows stay whole numbers of rows for each token. */
SL_API sl_var sl_build_reshape(sl_builder *b, const char *name, sl_var x, int64_t columns);
/* While training; probability in [0, 1). */
SL_API sl_var sl_build_dropout(sl_builder *b, const char *name, sl_var x, float probability);
/* Adds `share` times the mean cross-entropy of softmax(x weight^T) and the next tokens to what is trained; weight
 * [vocab or more, d]. In the last block, once or several times (at most 4). */
SL_API void sl_build_loss(sl_builder *b, const char *name, sl_var x, sl_var weight, double share);

#ifdef __cplusplus
}
#endif
#endif
