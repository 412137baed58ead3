/* Shared by the files that build a program. */
#ifndef SL_PROGRAM_INTERNAL_H
#define SL_PROGRAM_INTERNAL_H

#include <stdatomic.h>

#include "program/program.h"

enum { UNKNOWN_PRODUCER = -2 }; /* until the program is finished: no writer seen yet */
enum { VARIANTS = 2 };          /* full chunks and the shorter last one; both graphs have the same nodes and values */

/* A run of a parameter group without padding: what one update or sum of squares works on. Of an optimizer that is not flat it is one
 * tensor, or `tensors` matrices of one shape. Padding is never touched, so
 * whatever the memory of a gradient held before cannot reach a norm or a weight. */
typedef struct group_run {
    int32_t group, param; /* its first parameter */
    sl_optimizer optimizer;
    int64_t first, count;  /* elements of the group */
    int64_t decayed;       /* the first elements of the run that get weight decay */
    int64_t rows, columns; /* of each tensor */
    int tensors;           /* 0: flat */
} group_run;

/* What the model made: shared by all programs derived from one, and untouched by passes. */
typedef struct chunk_graphs {
    atomic_int users;
    sl_graph *graph[VARIANTS];
} chunk_graphs;

typedef struct sl_program_owner {
    sl_program program; /* first: the public part */
    chunk_graphs *graphs;
    sl_graph *passed[VARIANTS]; /* after a pass; NULL: none */
} sl_program_owner;

typedef struct builder {
    sl_program *program;
    const sl_graph *graph[VARIANTS];
    int32_t n_values, n_nodes;
    sl_dtype dtype;
    bool sliced;
    int64_t slices; /* chunks of one sequence when sliced, else 1 */
    int64_t chunks_per_round;
    int32_t n_runs;
    group_run *runs; /* in group order */
    int32_t capacity_objects, capacity_tasks;

    uint8_t *variant;             /* by chunk */
    sl_type *inputs[VARIANTS];    /* by kind of input; the program's */
    sl_task *prototype[VARIANTS]; /* by node: everything but objects and offsets */
    int32_t *slots;    /* (position in round, value): object; -1 not yet. Context lives at its sequence's first slice */
    int32_t *gradient; /* by group: gradient object; -1 not yet */
    int32_t *kept;     /* by value (caches and the result): object; -1: neither */
    int32_t *use_gradient; /* by value (parameter gradients): object; -1 not yet */
    int32_t *owner_block;  /* by parameter: the first block that uses it; its gradient goes straight into the group's */
    int32_t *maker;        /* by value: the forward node that makes it; -1 none */
    uint8_t *written;      /* by value (parameter gradients): some chunk has written it */
    int32_t *completion;   /* by group: backward node behind which nothing reads or writes it any more */
    int32_t partials_object;  /* sums of squares, one per run; -1 when there is no norm */
    int32_t *signature_slots; /* (slice or variant, node, accumulating): signature + 1 */
    int32_t *signature_table; /* open addressing by the signature's content: signature + 1 */
    int32_t signature_capacity;
} builder;

static inline bool has_norm(const sl_program_config *config)
{
    return config->gated || config->norm;
}

/* chunk_graphs.c */
/* A model, or a program with its graphs. */
typedef struct program_source {
    sl_graph_builder build;
    void *context;
    const sl_program *base;
} program_source;
/* The source's graphs, after the passes that the configuration asks for. */
sl_status sl_program_find_graphs(builder *b, sl_program_owner *owner, const program_source *source);
void sl_program_release_graphs(sl_program_owner *owner);

/* objects.c */
/* One that belongs to no block, chunk or round. */
sl_object sl_program_object(const char *name, sl_object_class class, size_t bytes, int32_t group);
sl_status sl_program_add_object(builder *b, const sl_object *object, int32_t *out);
sl_status sl_program_add_data(builder *b);
sl_status sl_program_add_persistent(builder *b);
/* The object, offset and type of a value as operand of a chunk's node: output `out_index`, or -1 for an input. `spans_slices`: of
 * context it covers the rows of all slices so far. Sets `accumulate` for parameter and context gradients. */
sl_status sl_program_resolve(builder *b, int32_t chunk, sl_value value, int out_index, bool spans_slices, sl_use *use,
                             uint32_t *accumulate);
int32_t sl_program_position(const builder *b, int32_t chunk); /* within its round */
int64_t sl_program_slice(const builder *b, int32_t chunk);    /* within its sequence */

/* signatures.c */
sl_status sl_program_signature(builder *b, const sl_task *task, int32_t *kind); /* finds or adds it */
void sl_program_finish_signatures(builder *b);

/* assign.c */
/* Of a parameter in its group. */
static inline int64_t sl_program_first_element(const builder *b, int32_t param)
{
    return (int64_t) (b->program->params[param].offset / sl_dtype_bytes(b->dtype));
}
sl_status sl_program_assign(builder *b);
sl_status sl_program_find_runs(builder *b);

/* optimizer.c */
void sl_program_find_completions(builder *b);
/* Right behind backward node `node` of the step's last chunk of its block. */
sl_status sl_program_complete_groups(builder *b, int32_t node);
sl_status sl_program_finish_updates(builder *b);

/* program.c */
sl_status sl_program_add_task(builder *b, const sl_task *task); /* its signature is set */

#endif
