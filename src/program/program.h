/*
 * A program: the tasks of one optimizer step in order, over named objects. It fixes the bits: which kernels run on which
 * values in which order. The plan decides where objects are, when they move and what is recomputed, which changes no value.
 *
 * Order of a step, for `rounds` groups of chunks:
 *   for each round:  for each block: all chunks forward;  then for each block in reverse: all chunks backward
 *   (backward takes sequences ascending and the slices of one sequence in reverse, so the grouping into rounds changes no sum)
 *   then, per parameter group, as early as its last gradient allows: [sum of squares]  optimizer update.
 * A planner may interleave rounds (forward blocks of the next between backward blocks of this one): no sum changes.
 * With gated updates (clipping, or skipping steps that are not finite) every update comes after the global norm.
 *
 * A parameter used in several blocks (tied embeddings) has one gradient object per block, added up before the update: one
 * accumulator shared by two blocks would make the order of the sum depend on the rounds (not with a single chunk: there is one).
 */
#ifndef SL_PROGRAM_PROGRAM_H
#define SL_PROGRAM_PROGRAM_H

#include "core/mem.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "tensor/policy.h"

typedef enum sl_object_class {
    SL_CLASS_PARAMETER,
    SL_CLASS_GRADIENT,   /* of a parameter group */
    SL_CLASS_OPTIMIZER,  /* moments, master weights */
    SL_CLASS_ACTIVATION, /* forward values */
    SL_CLASS_CONTEXT,    /* K/V of a sequence, and its gradient */
    SL_CLASS_HIDDEN,     /* gradients of activations */
    SL_CLASS_WORKSPACE,  /* appears in plans only */
    SL_CLASS_DATA,       /* inputs (graph/inputs.h): written into host memory before the step */
    SL_CLASS_RESULT,     /* losses, gradient norm: read from host memory after the step */
    SL_CLASS_COUNT
} sl_object_class;
const char *sl_object_class_name(sl_object_class class);

typedef struct sl_object {
    const char *name; /* "layers.3.gate_up", the same for every chunk; block/chunk/round tell which */
    sl_object_class class;
    size_t bytes;
    int32_t block, chunk, round; /* -1 where it does not apply; chunk counts from 0 over the whole step */
    bool persistent;             /* content survives from step to step (parameters, optimizer state) */
    int32_t
        producer; /* the one task that writes it, whole; -1 if several do, or none. Only such objects can be recomputed */
    int32_t group; /* parameter group for PARAMETER, GRADIENT, OPTIMIZER; -1 otherwise */
} sl_object;

typedef struct sl_use {
    int32_t object; /* -1: operand absent */
    size_t offset;  /* bytes into the object */
    sl_type type;
} sl_use;

typedef struct sl_task {
    sl_op_id op;
    uint32_t accumulate;
    sl_attrs attrs;
    const float *constants; /* sl_node */
    const char *name;       /* of the graph's node; with block and chunk it names the task for people */
    sl_use in[SL_MAX_IN], out[SL_MAX_OUT];
    sl_phase phase;
    int32_t block, chunk, round; /* -1 where it does not apply */
    int32_t signature;           /* tasks of one signature cost the same: same op, types, attributes, accumulate bits */
    bool host_allowed; /* may run beside host memory with the same bits (updates, sums of squares of gradients) */
} sl_task;

/* What all tasks of a launch signature have in common. */
typedef struct sl_task_signature {
    int32_t example; /* a task of it */
    int64_t count;
    sl_work work;
} sl_task_signature;

/* A task's attributes as its signature has them: less those that only say which part of a random stream a launch uses. */
sl_attrs sl_signature_attrs(const sl_task *task);

/* How tokens are divided into chunks. Fixed by model, sequence length and device kind, or by the user: never by a budget. */
typedef struct sl_chunking {
    int64_t seqlen, sequences; /* sequences per step */
    int64_t chunk_tokens;      /* tokens of a full chunk: a multiple of seqlen (packed) or less than it (sliced) */
} sl_chunking;

typedef struct sl_program_config {
    sl_chunking chunking;
    sl_precision precision;
    sl_optimizer optimizer;
    /* "PATTERN=OPTIMIZER,...": the first pattern that matches a parameter's name decides which optimizer updates it; NULL: none. */
    const char *optimizer_rules;
    float optimizer_options[SL_OPTIMIZER_COUNT][SL_MAX_OPTIMIZER_OPTIONS]; /* in the order of the descriptors */
    float weight_decay;
    const char *frozen;       /* patterns of parameters that are not trained (sl_graph); NULL: none */
    bool gated;               /* clipping or on-nan skip: updates wait for the global norm */
    bool norm;                /* compute the gradient norm even when not gated */
    bool forward_only;        /* validation: loss only */
    int64_t cache_rows;       /* generation: tokens whose K/V is kept from step to step; 0: none */
    bool token_weights;       /* the data says what each token counts in the loss */
    bool nondeterministic;    /* attention's backward may add in any order: the last bits differ from run to run */
    int64_t max_segments;     /* per chunk (packed) or per sequence (sliced): how many documents may be kept apart */
    int64_t chunks_per_round; /* placement: the planner chooses. Sliced sequences are never split over rounds */
    bool rematerialize;       /* placement: see sl_graph_rematerialize. Changes no bit */
    size_t workspace_limit;   /* placement: the most that a kernel should take; 0: no limit */
} sl_program_config;

/* Slices of a sequence (1: packed), chunks of a step, and chunks of a round where `wanted` are (0: all): at most the step's, and
 * slices of a sequence stay in one round. */
int64_t sl_chunking_slices(const sl_chunking *chunking);
int64_t sl_chunking_chunks(const sl_chunking *chunking);
int64_t sl_chunking_round(const sl_chunking *chunking, int64_t wanted);

/* A chunk's place in the step. */
typedef struct sl_chunk {
    int64_t first_sequence, n_sequences; /* packed: whole sequences */
    int64_t slice_offset;                /* sliced: first token within the sequence */
    int64_t tokens;
    int32_t data[SL_INPUT_COUNT]; /* objects; -1: not read. Chunks share one where the input's scope says so */
    const sl_type *input;         /* types by kind of input; rank 0: not read */
    int32_t loss_slot;
} sl_chunk;

typedef struct sl_program {
    sl_region *region; /* owns everything below */
    sl_object *objects;
    sl_task *tasks;
    sl_task_signature *signatures;
    sl_chunk *chunks;
    int32_t n_objects, n_tasks, n_signatures, n_chunks, n_blocks, n_rounds, n_groups;
    const sl_param_group *groups;
    const sl_param *params;
    int32_t n_params;
    const sl_block *blocks;
    sl_program_config config;
    /* Objects by parameter group; -1 where the precision or optimizer has none. */
    int32_t *param_object, *state_object[SL_STATE_SLOTS], *master_object;
    int32_t *optimizer; /* sl_optimizer by parameter */
    /* By parameter: its first element in the group's state; -1: it has no such state. By group: elements of its state. */
    int64_t *state_first[SL_STATE_SLOTS], *state_count[SL_STATE_SLOTS];
    int32_t correction[SL_OPTIMIZER_COUNT]; /* row of the step's corrections; -1: not used, or needs none */
    /* Gate -1 when no norm is computed. Losses: f32 sums, loss by loss, one for each chunk's loss_slot. */
    int32_t step_object, losses_object, gate_object;
    int32_t result_object; /* what a step without a loss is for: the logits of the last chunk's last token; -1: none */
    const sl_loss *losses;
    int32_t n_losses;
    int64_t tokens; /* per step */
    double flops;   /* per step, as MFU counts */
} sl_program;

/* The round a task belongs to; those after the rounds (updates behind the gate) count as the last round's. */
static inline int32_t sl_task_round(const sl_program *program, int32_t task)
{
    int32_t round = program->tasks[task].round;
    return round < 0 ? program->n_rounds - 1 : round;
}

/* Builds the program of a model. `build` makes the chunk graph for a number of tokens: called once per distinct chunk length
 * (full, tail); the caller passes sl_model_build through it, since this layer lies below the models. */
typedef sl_status (*sl_graph_builder)(void *context, sl_graph *graph);
sl_status sl_program_create(const sl_program_config *config, sl_graph_builder build, void *context,
                            sl_program **program);
void sl_program_destroy(sl_program *program);

/* What passes may make of a program: the same sums in another order of independent tasks, or with values made elsewhere. */
typedef struct sl_program_form {
    int64_t chunks_per_round;
    int64_t rounds;         /* only the first so many, all of full chunks; results keep their size. 0: all */
    bool rematerialize;     /* see sl_program_config */
    size_t workspace_limit; /* likewise */
} sl_program_form;
/* A program of the step that `base` is of, in another form. The model is not built again; `base` itself may have any form, and need
 * not outlive it. */
sl_status sl_program_derive(const sl_program *base, const sl_program_form *form, sl_program **program);

/* The default chunk for a sequence length: sequences are packed up to, or cut down to, about `target` tokens. */
int64_t sl_chunk_tokens_default(int64_t seqlen, int64_t sequences, int64_t target);
/* Which optimizers a configuration may use: its own, what that leaves others to, and those of its rules. */
void sl_program_may_use(const sl_program_config *config, bool used[SL_OPTIMIZER_COUNT]);
/* The corrections of the optimizers' states after so many updates, this one included. */
void sl_program_correct(const sl_program *program, double updates, sl_step_params *step);
/* "layers.3.gate_up chunk 5": for messages. */
const char *sl_task_describe(const sl_program *program, int32_t task, char out[160]);

#endif
