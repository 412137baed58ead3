/*
 * The graph of one chunk: what a model's forward pass does with n tokens, and, after sl_graph_differentiate, its backward.
 * Model files write the forward only. A graph knows nothing of steps, rounds or memory; the program instantiates it for
 * every chunk.
 *
 * Blocks are the model's layers in order (embedding, layer 0, ..., head): for each block all chunks of a round run before the
 * next block starts, so a block's weights cross the bus once per pass and round.
 *
 * Parameters live in groups ("layers.3.mlp"): a group is one flat buffer, moved and updated as one; every parameter is a
 * 256-byte aligned part of it, parameters with weight decay first.
 */
#ifndef SL_GRAPH_GRAPH_H
#define SL_GRAPH_GRAPH_H

#include "core/mem.h"
#include "graph/inputs.h"
#include "ops/op.h"
#include "sluice/model.h" /* sl_initializer */

typedef enum sl_value_class {
    SL_VALUE_ACTIVATION,
    SL_VALUE_PARAMETER,
    SL_VALUE_INPUT,    /* graph/inputs.h */
    SL_VALUE_CONTEXT,  /* K/V: a slice writes its own rows, attention reads the rows of all slices so far */
    SL_VALUE_LOSS,     /* one f32 per chunk and loss */
    SL_VALUE_CACHE,    /* K/V that is kept from step to step */
    SL_VALUE_RESULT,   /* read from the host after the step */
    SL_VALUE_GRADIENT, /* of an activation */
    SL_VALUE_CONTEXT_GRADIENT,
    SL_VALUE_PARAMETER_GRADIENT,
} sl_value_class;

/* Where a parameter's rows go in a Hugging Face file: rows [row, row+rows) of ours are the tensor `name` there.
 * Rotary positions rotate pairs of a head's rows. Interleaved rotation has a pair's two rows beside each other, Hugging Face's Llama
 * has them half a head apart, so q and k of a model that rotates interleaved are permuted on their way:
 *     ours  x0 y0 x1 y1 x2 y2        there  x0 x1 x2 y0 y1 y2 */
typedef struct sl_param_part {
    const char *name;
    int64_t row, rows;
    bool transposed; /* stored there as [columns, rows] (GPT-2's Conv1D) */
    int64_t
        pair_rows; /* rows of a head, where its pairs lie beside each other here and half a head apart there; 0: as there */
} sl_param_part;
#define SL_MAX_PARTS 3

typedef struct sl_param {
    const char *name; /* "layers.3.qkv" */
    sl_type type;
    sl_initializer init;
    float init_std;
    bool decay;        /* weight decay applies */
    bool frozen;       /* only read: no gradient, no optimizer state, no update */
    bool adapter;      /* not of the model itself: kept in files of its own */
    bool matrix;       /* set by sl_graph_finish: a matrix between activations wherever it is read (`maps_in` of ops) */
    const char *group; /* "layers.3.attention"; a group's parameters are declared one after the other */
    int n_parts;
    sl_param_part parts[SL_MAX_PARTS];
    /* set by the graph */
    int32_t group_index;
    size_t offset; /* bytes into the group, in the parameter dtype; set by sl_graph_finish */
} sl_param;

typedef struct sl_param_group {
    const char *name;
    int32_t first_param, n_params; /* in declaration order */
    int64_t count;                 /* elements, padding included (padding starts as zero and stays zero) */
    int64_t decayed;               /* the first elements, padding included, that get weight decay */
    bool frozen;                   /* all of its parameters are; else none is */
} sl_param_group;

typedef struct sl_graph_value {
    const char *name; /* "layers.3.gate_up" */
    sl_type type;
    sl_value_class class;
    int32_t param; /* parameters and their gradients */
    sl_input_kind input;
    int32_t loss;         /* losses: which one of the graph's; -1: none yet */
    sl_value gradient_of; /* gradients: of which value */
    sl_value
        storage; /* the value whose bytes it shares (gradient passed through a residual addition, view); else itself */
    size_t offset; /* of a view: bytes into the storage */
    bool is_view;
    int32_t block; /* where it is made; for parameter gradients the block whose use it belongs to */
} sl_graph_value;

typedef enum sl_phase { SL_PHASE_FORWARD, SL_PHASE_BACKWARD, SL_PHASE_OPTIMIZER } sl_phase;
const char *sl_phase_name(sl_phase phase); /* forward, backward, optimizer */

typedef struct sl_node {
    const char *name; /* "layers.3.gate_up" (the op is known apart) */
    sl_op_id op;
    sl_attrs attrs;
    /* Numbers that are too many for attributes, such as a factor for every rotated pair. Launches get them as they are, with those of the
     * node's gradient. They do not change how long a launch takes. NULL: none. */
    const float *constants;
    uint32_t accumulate; /* within the chunk; the program adds the bits that later chunks need */
    int32_t n_in, n_out;
    sl_value in[SL_MAX_IN], out[SL_MAX_OUT]; /* SL_NO_VALUE: absent */
    int32_t block;
    sl_phase phase;
} sl_node;

typedef struct sl_block {
    const char *name;
    int32_t first_forward, n_forward; /* nodes */
    int32_t first_backward,
        n_backward; /* nodes; the head's forward is part of its backward (n_forward is 0 there when training) */
} sl_block;

/* A model is trained on the sum of its losses, each a mean over what its targets count in the step, times its weight. */
typedef struct sl_loss {
    const char *name;
    double weight;
    sl_value value;
    sl_input_kind targets;
    int32_t weights; /* the kind of input that says what each target counts; -1: 1 */
} sl_loss;

typedef struct sl_graph sl_graph;
struct sl_graph {
    sl_region *region;  /* owns every name and array below */
    int64_t tokens;     /* n */
    int64_t samples;    /* sequences, whole or one slice */
    sl_dtype dtype;     /* of parameters and activations */
    const char *frozen; /* names of parameters to freeze: patterns with *, ?, [...], between commas; NULL: none */
    bool training;      /* differentiate and keep dropout */
    bool sliced;        /* chunks are slices: context gradients are f32 */
    sl_graph_value *values;
    sl_node *nodes;
    sl_block *blocks;
    sl_param *params;
    sl_param_group *groups;
    int32_t n_values, n_nodes, n_blocks, n_params, n_groups;
    int32_t capacity_values, capacity_nodes, capacity_blocks, capacity_params, capacity_groups;
    sl_value inputs[SL_INPUT_COUNT]; /* SL_NO_VALUE until requested */
    sl_loss losses[SL_MAX_LOSSES];
    int32_t n_losses;
    int64_t max_segments;
    int64_t
        cache_rows; /* tokens whose K/V is kept from step to step: the graph generates, and ends in logits. 0: it has a loss */
    bool token_weights; /* the data says what each token counts: losses over tokens read it */
};

typedef struct sl_graph_config {
    int64_t tokens, max_segments;
    int64_t samples; /* 0: 1 */
    sl_dtype dtype;
    int64_t cache_rows; /* as in sl_graph */
    const char *frozen; /* as in sl_graph; outlives the graph */
    bool training, sliced, token_weights;
} sl_graph_config;

sl_status sl_graph_create(const sl_graph_config *config, sl_graph **graph);
void sl_graph_destroy(sl_graph *graph);

/* Building, in the order things run. Names are copied. */
sl_status sl_graph_begin_block(sl_graph *graph, const char *name);
/* A second request for an input gives the same value. */
sl_status sl_graph_input(sl_graph *graph, sl_input_kind kind, sl_value *out);
/* Of a kind whose rows have extents: those of this model. */
sl_status sl_graph_input_of(sl_graph *graph, sl_input_kind kind, const int64_t *extents, int n_extents, sl_value *out);
/* dtype is the graph's. A second request for a name gives the same value (tied weights). */
sl_status sl_graph_param(sl_graph *graph, const sl_param *param, sl_value *out);
/* Appends an op; types come from its shape rule. `out` gets n_out values. An output that its op marks
 * as context becomes class CONTEXT. */
sl_status sl_graph_op(sl_graph *graph, sl_op_id op, const char *name, const sl_attrs *attrs, const sl_value *in,
                      int n_in, sl_value *out);
/* Gives the last node constants, which are copied. */
sl_status sl_graph_constants(sl_graph *graph, const float *values, int64_t count);
/* Adds `weight` times a loss, the output of an op that yields one, to what the model is trained on. */
sl_status sl_graph_loss(sl_graph *graph, sl_value value, double weight, const char *name);
/* Gives frozen parameters groups of their own, lays out the groups and, when training, differentiates: backward nodes block by block in
 * reverse. The last node must yield a loss. `loss`: the only one, of weight 1; SL_NO_VALUE where sl_graph_loss has named them. */
sl_status sl_graph_finish(sl_graph *graph, sl_value loss);

/* A copy of a finished graph whose backward nodes rematerialize forward values where they can, so that these need not be kept. Nodes and
 * values keep their numbers and blocks. Names, parameters and blocks are those of `graph`, which outlives the copy. */
sl_status sl_graph_rematerialize(const sl_graph *graph, sl_graph **out);

#endif
