/*
 * Models: families that describe a forward pass, presets that fill in numbers, and Hugging Face config.json in and out.
 * A model file writes the forward only; adding a family is one file and one line in families.def.
 */
#ifndef SL_MODEL_MODEL_H
#define SL_MODEL_MODEL_H

#include "graph/graph.h"
#include "model/lora.h"
#include "ops/rope.h"
#include "sluice/model.h"

typedef struct sl_model sl_model;
#define SL_MODEL_KEPT_BYTES 2048
#define SL_MODEL_MAX_LAYERS 4096
#define SL_MODEL_MAX_HEAD_DIM 256
typedef struct sl_model_family {
    const char *name; /* "llama", "gpt2": Hugging Face's model_type */
    sl_status (*build)(const sl_model *model, sl_graph *graph, sl_value *loss);
    /* Reads and writes the family's own config.json keys, by the rule in config.c. */
    sl_status (*read_config)(const char *file, const void *json_object, sl_model *model);
    void (*write_config)(const sl_model *model, void *json_writer);
    int64_t (*parameters)(const sl_model *model); /* as a closed formula, which a test holds against the built graph */
    int32_t ffn_matrices; /* d x f matrices per layer, for the metric formulas: 3 with a gate, 2 without */
    /* Of decoder.c: */
    bool fused_files;      /* qkv_proj and gate_up_proj are one tensor each in files */
    bool gelu_gate;        /* the MLP's gate passes through GELU, not SiLU */
    bool scaled_embedding; /* by sqrt(dim) */
    float norm_offset;     /* added to the weights of norms */
} sl_model_family;

/* How a kind of layers rotates. What is 0 has no effect; for the rest see struct sl_rope_attrs. */
typedef struct sl_model_rope {
    float theta;
    float factor, low_freq, high_freq;
    int32_t original_context;
    int32_t scaling; /* sl_rope_scaling */
    int32_t rotary;
    float partial; /* `rotary` as the share of head_dim that files have */
    float magnitude;
    bool exact_ramp;
    float short_factors[SL_MODEL_MAX_HEAD_DIM / 2], long_factors[SL_MODEL_MAX_HEAD_DIM / 2]; /* SL_ROPE_LONG */
} sl_model_rope;

/* What a layer does otherwise than "see all before, rotated by sl_model.rope". */
typedef enum sl_layer_flag {
    SL_LAYER_WINDOW = 1, /* sees `window` tokens, rotated by local_rope where that has a theta */
    SL_LAYER_NO_ROPE = 2,
} sl_layer_flag;

struct sl_model {
    const sl_model_family *family;
    char name[64];
    int64_t layers, dim, heads, kv_heads, head_dim, ffn, vocab;
    int64_t max_seqlen;    /* learned positions need it; 0 = any */
    int64_t max_positions; /* what a config.json says of rotary ones: kept for others, no limit here; 0 = it does not */
    bool tied;
    float norm_eps;
    int32_t rope_style; /* sl_rope_style */
    sl_model_rope rope, local_rope;
    int64_t window;
    uint8_t layer_flags[SL_MODEL_MAX_LAYERS]; /* of sl_layer_flag */
    bool qkv_bias, o_bias, mlp_bias;          /* of decoders with RMSNorm (decoder.c) */
    float query_scale;                        /* scores are divided by its root; 0: by that of head_dim */
    float attention_cap, logit_cap;           /* soft caps; 0: none */
    bool gelu_tanh;
    float dropout;
    float init_std; /* 0: the family's own rule per matrix */
    /* Of a program that embeds Sluice; NULL: the family's. */
    sl_status (*custom)(void *user, sl_builder *builder);
    void *custom_user;
    char identity[128];   /* of a custom model: its graph's */
    int64_t n_parameters; /* set by sl_model_count */
    sl_lora lora;         /* adapters to train; rank 0: none, the model itself is trained */
    char kept
        [SL_MODEL_KEPT_BYTES]; /* JSON object: keys of its config.json that only matter to others (special tokens, ...) */
};

/* A preset name, a path to config.json or to a folder that holds one, or ORG/NAME in the local Hugging Face cache. The message lists
 * what there is. */
sl_status sl_model_find(const char *name_or_path, sl_model *model);
/* Where the files of such a model are: ORG/NAME and ORG/NAME@REVISION become a folder of the cache, anything else stays as it is.
 * Not for presets. (hub.c) */
enum { SL_MODEL_PATH_BYTES = 1024 };
sl_status sl_model_locate(const char *name_or_path, char path[SL_MODEL_PATH_BYTES]);
int64_t sl_model_presets(const sl_model **presets);
bool sl_model_is_preset(const char *name);
/* Of layer i: tokens that one sees, itself included (0: all before it), and how it rotates (NULL: not at all). */
int64_t sl_model_window(const sl_model *model, int64_t i);
const sl_model_rope *sl_model_rope_of(const sl_model *model, int64_t i);
sl_status sl_model_check(const sl_model *model); /* dimensions that make sense; names the offending key */
sl_status sl_model_build(const sl_model *model, sl_graph *graph); /* ends with sl_graph_finish */
sl_status sl_build_model(void *model, sl_graph *graph);           /* the same, as sl_program_create takes it */
sl_status sl_model_write_config(const sl_model *model, const char *path);
/* With the dtype of the weights beside it: "bfloat16". Readers that find none take float32, or choose float16. */
sl_status sl_model_write_config_with(const sl_model *model, const char *dtype, const char *path);
/* Of sl_job_set_model. */
sl_status sl_model_of(const sl_model_def *def, sl_model *model);
/* Builds a custom model once, for chunks of `tokens`, and counts its parameters. */
sl_status sl_model_count(sl_model *model, int64_t tokens, int64_t max_segments);
int64_t sl_model_parameters(const sl_model *model);
/* DESIGN.md's metric formulas: arithmetic of a training step over `sequences` sequences of `seqlen`. */
double sl_model_step_flops(const sl_model *model, int64_t seqlen, int64_t sequences);

#endif
