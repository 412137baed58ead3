/* What the model files share: short forms for building a forward pass, and strict reading of config.json. */
#ifndef SL_MODEL_INTERNAL_H
#define SL_MODEL_INTERNAL_H

#include "core/json.h"
#include "model/model.h"

#define SL_FAMILY(name) extern const sl_model_family sl_family_##name;
#include "model/families.def"
#undef SL_FAMILY

/* Beyond these a config.json is a mistake or an attack; within them every product fits int64_t. */
#define SL_MODEL_MAX_DIM (INT64_C(1) << 22)
#define SL_MODEL_MAX_LAYERS 4096

/* Advice for the former name of a preset; NULL for any other name. */
const char *sl_model_renamed(const char *name);

/* ---- building ---- */

/* A forward pass being written. The first failure sticks in `status` and later calls do nothing, so that a model reads as its
 * formula; whoever began checks once. */
typedef struct sl_forward {
    sl_graph *graph;
    sl_status status;
    const char *scope; /* "layers.3": in front of names */
    const char *group; /* of the parameters to come */
} sl_forward;

/* Shape rows x columns (columns 0: a vector). std 0 with SL_INIT_NORMAL is never meant: see set_linear_init in llama.c. */
typedef struct sl_forward_param {
    const char *name;
    int64_t rows, columns;
    sl_init init;
    float std;
    bool decay;
    int n_parts;
    sl_param_part parts[SL_MAX_PARTS]; /* names relative to `prefix` */
    const char *prefix;                /* of the Hugging Face names: "model.layers.3" */
} sl_forward_param;

void sl_forward_block(sl_forward *f, const char *name);
sl_value sl_forward_input(sl_forward *f, sl_input_kind kind);
sl_value sl_forward_parameter(sl_forward *f, const sl_forward_param *param);
/* Appends an op and returns its first output; `second` (may be NULL) gets the next one. */
sl_value sl_forward_op(sl_forward *f, sl_op_id op, const char *name, const sl_attrs *attrs, const sl_value *in,
                       int n_in, sl_value *second);
/* x W^T [+ bias] [+ residual] */
sl_value sl_forward_linear(sl_forward *f, const char *name, sl_value x, sl_value weight, sl_value bias,
                           sl_value residual);
/* Rotation (or only the split, where slices of a long sequence need it), then causal attention. */
sl_value sl_forward_attention(sl_forward *f, const sl_model *model, sl_value qkv);
/* Next-token loss against `weight` [V, d]. */
sl_value sl_forward_head(sl_forward *f, const sl_model *model, sl_value x, sl_value weight);

/* ---- config.json ---- */

sl_status sl_model_read_config(const char *path, sl_model *model);
/* `file` is for messages. */
sl_status sl_model_parse_config(const char *file, const char *text, size_t length, sl_model *model);
/* What sl_model_write_config writes. */
sl_status sl_model_config_text(const sl_model *model, sl_text *out);

/* The rule of config.c for every key of `object` that is not in `known` (ends with NULL): what the caller reads itself. */
sl_status sl_config_check_keys(const char *file, const sl_json *object, const char *const *known);
/* Integer in [1, limit]; with `otherwise` > 0 it may be absent. */
sl_status sl_config_count(const char *file, const sl_json *object, const char *key, int64_t otherwise, int64_t limit,
                          int64_t *out);
/* Finite number in [least, most]. */
sl_status sl_config_number(const char *file, const sl_json *object, const char *key, double otherwise, double least,
                           double most, float *out);
/* A float as the shortest decimal that gives it back: 1e-05, not 9.99999974737875e-06. */
void sl_config_put(sl_json_writer *w, const char *key, float value);
/* A key whose value we can only honour when it is this one; absent is fine. */
sl_status sl_config_must_be_string(const char *file, const sl_json *object, const char *key, const char *want);

#endif
