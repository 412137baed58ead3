/* What the model files share: short forms for building a forward pass, and strict reading of config.json. */
#ifndef SL_MODEL_INTERNAL_H
#define SL_MODEL_INTERNAL_H

#include "core/json.h"
#include "model/model.h"

#define SL_FAMILY(name) extern const sl_model_family sl_family_##name;
#include "model/families.def"
#undef SL_FAMILY
extern const sl_model_family sl_family_custom; /* of sl_job_set_model; it has no files of its own (builder.c) */

/* Beyond these a config.json is a mistake or an attack; within them every product fits int64_t. */
#define SL_MODEL_MAX_DIM (INT64_C(1) << 22)

/* Advice for the former name of a preset; NULL for any other name. */
const char *sl_model_renamed(const char *name);

/* ---- building ---- */

/* A forward pass being written. The first failure sticks in `status` and later calls do nothing, so that a model reads as its
 * formula; whoever began checks once. The public builder (sluice/model.h) is the same object behind checked functions (builder.c). */
typedef struct sl_builder {
    const sl_model *model;
    sl_graph *graph;
    sl_status status;
    char scope[96];  /* "layers.3": in front of names */
    char prefix[96]; /* "model.layers.3": in front of Hugging Face's */
    char group[192]; /* "layers.3.mlp": of the parameters to come */
    int64_t layer;   /* 3: which sl_model.layer_flags describe */
    uint32_t id;     /* public builder: in the variables of this graph, unlike any other's */
    uint32_t dropouts;
    uint32_t adapters; /* so far */
} sl_forward;

/* Shape rows x columns (columns 0: a vector). std 0 with SL_INIT_NORMAL is never meant: see matrix() in decoder.c. */
typedef struct sl_forward_param {
    const char *name;
    int64_t rows, columns;
    sl_initializer init;
    float std;
    bool decay, frozen, adapter;
    int n_parts;
    sl_param_part parts[SL_MAX_PARTS]; /* names relative to the prefix */
} sl_forward_param;

/* Begins a block whose parameters form one group of its name: what comes before and after the layers. */
void sl_forward_block(sl_forward *f, const char *name, const char *prefix);
/* Begins the block of a layer, which is "<prefix>.<layer>" in files; groups follow. */
void sl_forward_layer(sl_forward *f, int64_t layer, const char *prefix);
void sl_forward_group(sl_forward *f, const char *part);
sl_value sl_forward_input(sl_forward *f, sl_input_kind kind);
sl_value sl_forward_parameter(sl_forward *f, const sl_forward_param *param);
/* A vector, which gets no weight decay. */
sl_value sl_forward_vector(sl_forward *f, const char *name, const char *file_name, int64_t count, sl_initializer init);
/* Appends an op and returns its first output; `second` (may be NULL) gets the next one. */
sl_value sl_forward_op(sl_forward *f, sl_op_id op, const char *name, const sl_attrs *attrs, const sl_value *in,
                       int n_in, sl_value *second);
/* x W^T [+ bias], with the adapters that the model has there. */
sl_value sl_forward_linear(sl_forward *f, const char *name, sl_value x, sl_value weight, sl_value bias);
/* What the adapters of the modules in `weight` add to x W^T (lora.c); SL_NO_VALUE: they have none. */
sl_value sl_forward_lora(sl_forward *f, const char *name, sl_value x, sl_value weight);
/* Every target has met a module of the graph. */
sl_status sl_lora_check_targets(const sl_lora *lora, const sl_graph *graph);
sl_value sl_forward_add(sl_forward *f, const char *name, sl_value a, sl_value b);
/* Rotation, or the split alone, then causal attention. */
sl_value sl_forward_attention(sl_forward *f, sl_value qkv);
/* sl_rope_attrs and, for SL_ROPE_LONG, factors (else NULL); then sl_attention_attrs. */
sl_value sl_forward_attend(sl_forward *f, const char *rope_name, const char *name, const sl_attrs *rope,
                           const float *factors, const sl_attrs *attention, sl_value qkv);
/* Next-token loss against `weight` [V, d]; the last token's logits where the graph generates. */
sl_value sl_forward_head(sl_forward *f, const char *name, sl_value x, sl_value weight);

/* ---- decoders with RMSNorm, rotary positions and SwiGLU (decoder.c, decoder_config.c) ---- */

/* Embedding, the layers, last norm and loss; `layer` appends one layer to x [n, d]. */
sl_status sl_decoder_build(const sl_model *model, sl_graph *graph, sl_value (*layer)(sl_forward *f, sl_value x),
                           sl_value *loss);
sl_value sl_decoder_norm(sl_forward *f, const char *name, const char *file_name, sl_value x);
/* q, k and v of all heads, side by side: [n, a + 2k]. */
sl_value sl_decoder_qkv(sl_forward *f, sl_value x);
/* The attention's way back into the residual stream. */
sl_value sl_decoder_output(sl_forward *f, sl_value x);
/* The norm of queries and keys: of each head, or over all of them (`whole`). */
sl_value sl_decoder_qk_norm(sl_forward *f, sl_value qkv, bool whole);
int64_t sl_decoder_qk_norm_parameters(const sl_model *model, bool whole);
/* The feed-forward half of a layer: its matrices and what lies between them; and with a norm in front and the residual addition. */
sl_value sl_decoder_feed_forward(sl_forward *f, sl_value x);
sl_value sl_decoder_mlp(sl_forward *f, sl_value x);
int64_t sl_decoder_parameters(const sl_model *model);
/* A decoder whose layers are Llama's: `build` of such families. */
sl_status sl_llama_build(const sl_model *model, sl_graph *graph, sl_value *loss);

#define SL_DECODER_POSITIONS \
    2048 /* where "max_position_embeddings" is absent and the family has no number of its own */

/* What families read differently. Numbers of absent keys: 0 is what most families have. */
typedef struct sl_decoder_keys {
    const char *architecture; /* of transformers */
    const char *const *own;   /* keys that the family reads itself; ends with NULL */
    int64_t heads, vocab;     /* 0: they must be given */
    int64_t kv_heads;         /* 0: as many as heads */
    int64_t head_dim;         /* 0: hidden_size / num_attention_heads */
    int64_t max_positions;    /* 0: SL_DECODER_POSITIONS */
    float norm_eps;           /* 0: 1e-6 */
    bool tied;
    const char *activation; /* NULL: "silu" */
    bool kv_heads_required; /* absent is no number of heads that the file can mean */
    struct {
        double theta;             /* 0: 10000 */
        double local_theta;       /* of layers with a window, which rotate on their own; 0: they do not */
        int64_t original_context; /* what longrope finds beside its object and nowhere else; 0: it may be inside */
        bool partial;             /* "partial_rotary_factor" counts */
        bool yarn_is_long;        /* longrope's former name */
    } rope;
} sl_decoder_keys;
sl_status sl_decoder_read_config(const char *file, const sl_json *root, const sl_decoder_keys *keys, sl_model *model);
void sl_decoder_write_config(const sl_model *model, const sl_decoder_keys *keys, sl_json_writer *w);

/* attention_bias of q, k, v and o; mlp_bias of gate, up and down, where `mlp`. */
sl_status sl_decoder_read_biases(const char *file, const sl_json *root, bool mlp, sl_model *model);
void sl_decoder_write_biases(const sl_model *model, bool mlp, sl_json_writer *w);
/* Every key of rotary positions (rope_config.c). model->head_dim is known; `max_positions`: as read or by default. */
sl_status sl_rope_read_config(const char *file, const sl_json *root, const sl_decoder_keys *keys, int64_t max_positions,
                              sl_model *model);
void sl_rope_write_config(const sl_model *model, const sl_decoder_keys *keys, sl_json_writer *w);

/* Keys that Gemma 2 and 3 share beside those of decoders (gemma_config.c), and what holds where they are absent. */
typedef struct sl_gemma_keys {
    sl_decoder_keys decoder;
    float attention_cap, logit_cap; /* 0: none */
    int64_t pattern;                /* of so many layers the last one sees everything, the others a window */
} sl_gemma_keys;
sl_status sl_gemma_read_config(const char *file, const sl_json *root, const sl_gemma_keys *keys, sl_model *model);
void sl_gemma_write_config(const sl_model *model, const sl_gemma_keys *keys, sl_json_writer *w);

/* ---- single layers in config.json (layers_config.c) ---- */

/* "sliding_window"; null: none. `otherwise`: where it is absent; 0: none. */
sl_status sl_layers_read_window(const char *file, const sl_json *root, int64_t otherwise, sl_model *model);
/* "layer_types" into SL_LAYER_WINDOW; *found: it is there. */
sl_status sl_layers_read_types(const char *file, const sl_json *root, sl_model *model, bool *found);
int64_t sl_layers_windowed(const sl_model *model); /* how many layers have SL_LAYER_WINDOW */
/* One window for every layer. */
sl_status sl_layers_read_same_window(const char *file, const sl_json *root, int64_t otherwise, sl_model *model);
/* A window if "use_sliding_window", for the layers of "layer_types", where that is given (*by_types). */
sl_status sl_layers_read_switched(const char *file, const sl_json *root, int64_t otherwise, sl_model *model,
                                  bool *by_types);
/* The same; without "layer_types" those from "max_window_layers" on. */
sl_status sl_layers_read_last_windows(const char *file, const sl_json *root, sl_model *model);
void sl_layers_write_same_window(const sl_model *model, sl_json_writer *w);
void sl_layers_write_types(const sl_model *model, sl_json_writer *w);
void sl_layers_write_last_windows(const sl_model *model, sl_json_writer *w);

/* ---- config.json ---- */

sl_status sl_model_read_config(const char *path, sl_model *model);
/* `file` is for messages. */
sl_status sl_model_parse_config(const char *file, const char *text, size_t length, sl_model *model);
/* What sl_model_write_config writes. */
sl_status sl_model_config_text(const sl_model *model, sl_text *out);

/* The rule of config.c for every key of `object` that is neither in `known` nor in `own` (end with NULL; `own` may be NULL): those
 * the caller reads itself. */
sl_status sl_config_check_keys(const char *file, const sl_json *object, const char *const *known,
                               const char *const *own);
/* The value of "quantization_config": weights that can be read, or an error that names what they are. */
sl_status sl_config_check_quantization(const char *file, const sl_json *member);
/* Of a multimodal model, *root becomes its language model's object (wrapper_config.c). */
sl_status sl_config_enter_text(const char *file, const sl_json **root, const char **model_type);
/* "architectures" and "model_type", which begin every config.json. */
void sl_config_put_family(sl_json_writer *w, const sl_model *model, const char *architecture);
/* Integer in [1, limit]; with `otherwise` > 0 it may be absent. */
sl_status sl_config_count(const char *file, const sl_json *object, const char *key, int64_t otherwise, int64_t limit,
                          int64_t *out);
/* Finite number in [least, most]. */
sl_status sl_config_number(const char *file, const sl_json *object, const char *key, double otherwise, double least,
                           double most, float *out);
/* A float as the shortest decimal that gives it back: 1e-05, not 9.99999974737875e-06. */
double sl_config_decimal(float value);
void sl_config_put(sl_json_writer *w, const char *key, float value);
/* A key whose value we can only honour when it is this one; absent is fine. */
sl_status sl_config_must_be_string(const char *file, const sl_json *object, const char *key, const char *want);

#endif
