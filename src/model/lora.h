/*
 * Low-rank adapters (LoRA). The model's parameters are frozen; beside a linear layer y = x W^T stand two small matrices that are
 * trained:
 *
 *     y = x W^T + scale (x A^T) B^T        A [rank, in], B [out, rank], scale = alpha / rank
 *
 * Which layers get one is said with the names of Hugging Face's modules ("q_proj"), and files of adapters are those of PEFT, so that
 * either side reads what the other writes.
 */
#ifndef SL_MODEL_LORA_H
#define SL_MODEL_LORA_H

#include "core/text.h"
#include "graph/graph.h"

enum { SL_LORA_MOST_RANK = 4096, SL_LORA_TARGETS = 512 };
#define SL_LORA_ALL "all-linear"

typedef struct sl_lora {
    int64_t rank; /* 0: no adapters */
    double alpha;
    bool transposed;               /* the file says that the model's matrices are stored as [in, out] */
    bool rank_stabilized;          /* scale = alpha / sqrt(rank) */
    float dropout;                 /* of x on its way to A */
    char targets[SL_LORA_TARGETS]; /* names of modules between commas, or SL_LORA_ALL */
    int64_t modules;               /* how many of the model's these are; 0: however many */
} sl_lora;

float sl_lora_scale(const sl_lora *lora);
/* Whether the module gets an adapter: "model.layers.3.mlp.up_proj" for "up_proj", "mlp.up_proj" and the whole name. */
bool sl_lora_is_target(const sl_lora *lora, const char *module);

/* Adds the last names of all modules with adapters to a list with commas. */
void sl_lora_modules(const sl_param *params, int32_t n_params, sl_text *out);

#define SL_LORA_CONFIG "adapter_config.json"
#define SL_LORA_WEIGHTS "adapter_model.safetensors"

/* PEFT's adapter_config.json. A key that changes what an adapter computes and is not known here is an error that names it. */
/* Modules that are listed one by one, layer for layer, become their names behind the layer's number and how many there are. */
sl_status sl_lora_read_config(const char *path, sl_lora *lora);
sl_status sl_lora_parse_config(const char *file, const char *text, size_t length, sl_lora *lora);
/* The same for writing: `params` are those of the graph, `base` is where the model itself is. */
sl_status sl_lora_config_text(const sl_lora *lora, const sl_param *params, int32_t n_params, const char *base,
                              sl_text *out);

#endif
