/*
 * Ops: pure functions on tensors. An op is a line in ops.def and a `const sl_op_def sl_op_<name>` in this folder that knows
 * its shape rule, gradient rule, cost, plain reference kernel and test cases. Devices bring fast kernels; they are always
 * checked against the reference kept here.
 *
 * All tensors are dense and row-major. A launch names its operands by position, as listed in ops.def. "Accumulate" is part
 * of the launch (bit k: out[k] += result instead of out[k] = result), so that gradients are summed without an extra pass.
 */
#ifndef SL_OPS_OP_H
#define SL_OPS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/rng.h" /* SL_HD */
#include "core/status.h"
#include "tensor/type.h"

typedef enum sl_op_id {
#define SL_OP(ID, name) SL_OP_##ID,
#include "ops/ops.def"
#undef SL_OP
    SL_OP_COUNT
} sl_op_id;

enum { SL_TARGET_IGNORED = -100 }; /* of a model's targets, by PyTorch's convention */

/* Numbers that belong to a launch but are no tensors. Each op defines its own as `struct sl_<op>_attrs` in its header, with
 * SL_ATTRS_OF; everything else copies, compares and hashes them as bytes, so the whole of it is zero before a field is set, and the
 * structure has no padding, which assignments may leave as it is: a field `unused` fills it. */
typedef struct sl_attrs {
    uint64_t raw[8];
} sl_attrs;
/* sl_<op>_attrs(attrs) reads, sl_<op>_set(attrs) writes. */
#define SL_ATTRS_OF(op)                                                                      \
    static inline SL_HD const struct sl_##op##_attrs *sl_##op##_attrs(const sl_attrs *attrs) \
    {                                                                                        \
        return (const struct sl_##op##_attrs *) (const void *) attrs;                        \
    }                                                                                        \
    static inline SL_HD struct sl_##op##_attrs *sl_##op##_set(sl_attrs *attrs)               \
    {                                                                                        \
        return (struct sl_##op##_attrs *) (void *) attrs;                                    \
    }
#define SL_ATTRS_TYPE __attribute__((may_alias)) /* of these structs: the bytes are an sl_attrs */
/* The attributes of a test case. */
#define SL_ATTRS(op, ...) (&(const struct sl_##op##_attrs){__VA_ARGS__})

/* What changes from step to step, as one small operand (16 words) that is uploaded with the step's data; launches themselves
 * never change, so a step can be recorded once and replayed. */
typedef struct sl_step_params {
    float learning_rate;
    float loss_scale; /* of the first loss: its weight / what its targets count in the step; see sl_loss_scale */
    float clip;       /* largest global gradient norm; 0 = no clipping */
    uint32_t step;    /* 1-based */
    uint32_t seed_lo, seed_hi;
    float further_loss_scales[3];
    float corrections[3][2]; /* what optimizers divide their states by, such as 1 - beta1^t and 1 - beta2^t */
    uint32_t unused;
} sl_step_params;
#define SL_STEP_WORDS 16
#define SL_MAX_CORRECTIONS 3
#define SL_MAX_LOSSES 4

/* What the gradients of a model's loss are multiplied by. */
static inline SL_HD float sl_loss_scale(const sl_step_params *step, int32_t loss)
{
    return loss > 0 ? step->further_loss_scales[loss - 1] : step->loss_scale;
}

#define SL_MAX_IN 6
#define SL_MAX_OUT 4

typedef struct sl_operand {
    void *data; /* NULL when absent */
    sl_type type;
} sl_operand;

typedef struct sl_launch {
    sl_op_id op;
    uint32_t accumulate; /* bit k: out[k] is added to */
    sl_operand in[SL_MAX_IN];
    sl_operand out[SL_MAX_OUT];
    sl_attrs attrs;
    const float *constants; /* in host memory: see sl_node; NULL: none */
    void *workspace;        /* 256-byte aligned; as many bytes as the device asked for */
    /* In a query of the workspace: the most it should be, where a kernel has the choice (0: no limit). It changes
     * time, never bits. */
    size_t workspace_bytes;
} sl_launch;

typedef enum sl_category {
    SL_CAT_ELEMENTWISE,
    SL_CAT_REDUCTION,
    SL_CAT_DOT_PRODUCT,
    SL_CAT_ATTENTION,
    SL_CAT_OPTIMIZER
} sl_category;

/* Work of one launch. `flops` is what the arithmetic needs (multiply-add = 2; causal attention counts half the square);
 * `hardware_flops` adds what the kernel really does on top (attention backward recomputes the scores; the head's backward recomputes nothing). */
typedef struct sl_work {
    double flops, hardware_flops;
    double read_bytes, write_bytes;
} sl_work;

/* Graph values, as seen by gradient rules. */
typedef int32_t sl_value;
#define SL_NO_VALUE (-1)

/* The interface between a gradient rule and the graph. `in`/`out` are the forward node's values, d_out the gradients
 * of its outputs (SL_NO_VALUE: none, treat as zero), need[i] whether input i needs a gradient. */
typedef struct sl_gradient sl_gradient;
struct sl_gradient {
    const sl_attrs *attrs;
    const sl_type *in_type, *out_type;
    const sl_value *in, *out, *d_out;
    const bool *need;
    void *graph;
    /* Appends a launch. targets[k] says what its k-th output is: i >= 0: a contribution to the gradient of input i (the graph
     * sets the accumulate bit or adds, as needed); SL_TARGET_NONE: absent; SL_TARGET_LOSS: the forward node's own output 0
     * (a backward that also yields the forward's result). */
    sl_status (*emit)(sl_gradient *gradient, sl_op_id op, const sl_attrs *attrs, const sl_value *in, int n_in,
                      const int *targets, int n_out);
    /* The gradient of input `i` is the value `d` itself, unchanged (residual additions). Call after the emits that read d. */
    sl_status (*pass)(sl_gradient *gradient, int i, sl_value d);
    sl_value step; /* the step-parameters input, for rules that need it */
};
#define SL_TARGET_NONE (-1)
#define SL_TARGET_LOSS (-2)

/* A test case of an op: types and attributes; the conformance test fills the operands (seeded normal values; i32 operands by
 * `fill`) and compares every kernel with the reference. */
typedef struct sl_op_case sl_op_case;
struct sl_op_case {
    const char *name;
    sl_type in[SL_MAX_IN];
    const void *attrs; /* SL_ATTRS(op, ...) or an sl_attrs; NULL: zeros */
    const float *constants;
    uint32_t accumulate;
    int64_t index_range; /* i32 operands (tokens, targets): uniform in [0, index_range) */
    int64_t segments;    /* attention: number of sequences packed (equal to 1 + odd remainders), 0 = 1 */
    bool optional_out; /* include the optional outputs: sums, the forward's value, or master weights with f32 moments */
    bool wide_out;     /* attention_bwd: dkv in f32 whatever the inputs' dtype */
    bool not_finite;   /* grad_gate: a partial is infinite; optimizers: the gate says skip or, without one,
                            some gradients are not finite */
};

/* What the graph and the program need an op for. They look it up by its role and never by its name. */
typedef enum sl_op_role {
    SL_ROLE_NONE,
    SL_ROLE_ADD,         /* out[0] = in[0] + in[1] */
    SL_ROLE_ACCUMULATE,  /* out[0] += in[0] */
    SL_ROLE_COLUMN_SUMS, /* out[0] += sums of in[0]'s columns: the gradient of a bias */
    SL_ROLE_SUM_SQUARES, /* out[0] = sum of in[0]'s squares */
    SL_ROLE_GRAD_GATE,   /* in: sums of squares, step parameters; out[0]: {factor, norm, skip, 0} */
    SL_ROLE_COUNT
} sl_op_role;

/* Where a chunk stands in its step and in its sequence. */
typedef struct sl_chunk_position {
    int64_t first_row;     /* of the chunk among all tokens of the step */
    int64_t slice_offset;  /* of the chunk in its sequence; 0 where sequences are packed */
    int64_t seqlen;        /* tokens of a sequence */
    int64_t segment_rows;  /* rows of every segment where all are alike; 0: only the operand tells */
    bool nondeterministic; /* sums may be added in any order, so that their last bits differ from run to run */
} sl_chunk_position;

typedef struct sl_op_shapes sl_op_shapes;

/* How operands are filled. */
typedef struct sl_fill_rule {
    uint64_t seed;
    const sl_op_case *op_case; /* NULL: for timing */
    int64_t sequences;         /* for timing: how many the segments hold; 0: as many as there is space for */
} sl_fill_rule;

typedef struct sl_op_def {
    const char *name;
    sl_category category;
    int n_in, n_out;    /* positions, optional ones included */
    size_t attrs_bytes; /* of struct sl_<op>_attrs; 0: it has none */
    uint32_t optional_in, optional_out;
    uint32_t fixed_in;       /* floats to which no gradient flows: tables that a model computes once */
    uint32_t can_accumulate; /* outputs that take the accumulate bit */
    uint32_t updates;        /* outputs always read and updated */
    /* k > 0: the optional output k takes the sums of out[0]'s columns: of all that it holds after the launch, before that is
     * rounded; or of what it held before a launch that adds to it (0 where it does not). The graph asks for them where a bias's
     * gradient would read out[0] only to sum it. An op has one of the two at most. */
    int sums_after, sums_before;
    /* k > 0, of a backward: the optional output k takes what the forward made, once more and to the same bits; it may lie where in[0],
     * that value's gradient, does. The graph asks for it where it is not to wait in memory, or to be recomputed by a pass of
     * its own. */
    int rematerialized_out;
    bool backward_rematerializes; /* of a forward: its backward can */
    /* Output types from input types, or a message that names op and operand. Optional outputs are left rank 0. */
    sl_status (*infer)(const sl_attrs *attrs, const sl_type *in, sl_type *out);
    void (*work)(const sl_launch *launch, sl_work *work); /* looks at types and attrs only */
    void (*reference)(const sl_launch *launch);           /* scalar, single thread, f32/f64 arithmetic inside */
    sl_status (*gradient)(sl_gradient *gradient);         /* NULL: no gradient flows through */
    /* Fusion. k > 0: the optional input k is added to out[0] before that is rounded, so that the op can take over an addition. */
    int adds_in;
    /* k > 0: in[0] and in[k] may as well be one matrix in whose rows they lie side by side, as in[0] and without in[k]. */
    int joined_in;
    bool (*splits)(const sl_attrs *attrs); /* out[0] and out[1] are just the parts of in[0]'s rows; NULL: never */
    /* Bytes into in[0] at which out[0] lies as it is, so that the graph need not launch the op; -1: these attributes want a copy. NULL:
     * the op computes. */
    int64_t (*view)(const sl_attrs *attrs, const sl_type *in);
    const sl_op_case *cases;
    int64_t n_cases;
    /* Largest error a kernel may show against the reference, relative to the output's largest magnitude, by dtype of in[0]:
     * f32, bf16. 0 = bit-equal. (f32 by-products of a bf16 launch, such as lse, are held to ten times the first.) */
    double tolerance[2];
    bool narrow_inside; /* a bf16 launch rounds to bf16 on the way to its f32 outputs, too: they are held to bf16's */
    /* Bytes of launch.workspace the reference itself needs; NULL: none. A device that falls back to the reference adds it. */
    size_t (*workspace)(const sl_launch *launch);
    /* Bytes that an accelerator's kernels keep there as a rule, for a device that is not here; NULL: none. */
    size_t (*estimate_workspace)(const sl_launch *launch);

    /* ---- for graph and program ---- */
    sl_op_role role;
    const void *role_attrs; /* attributes with which it fills its role; NULL: zeros */
    uint32_t maps_in;       /* bit k: in[k] is a matrix between activations, such as optimizers of matrices update */
    bool yields_loss;       /* out[0] is a model's loss */
    /* Of an op that does: in[k] holds the targets, and what each of them counts, where present. No gradient flows there. `number_loss`
     * says in the attributes which of the model's losses it is. */
    int loss_targets, loss_weights;
    void (*number_loss)(sl_attrs *attrs, int32_t loss);
    /* Slices of a long sequence share the K/V of the whole sequence, the context. Bit k of makes_context: out[k] is context. Bit k of
     * context_in and context_out: the operand spans the rows of all slices so far, where others see the slice's own rows. */
    uint32_t makes_context, context_in, context_out;
    /* Bit k: out[k], one of those it updates, is kept from step to step: the K/V of a text that is being generated. */
    uint32_t makes_cache;
    bool yields_result; /* out[0] is what a step without a loss is for, and is read from the host after it */
    /* Sets the attributes that depend on where the chunk stands; NULL: none does. */
    void (*place)(sl_attrs *attrs, const sl_chunk_position *place);

    /* ---- for costs ---- */
    bool backward; /* hardware profiles know the rates of forward and backward apart */
    int segments;  /* k > 0: in[k] holds the boundaries of packed sequences, on which time depends */
    /* Clears what costs nothing: attributes that only say which part of a random stream a launch uses. NULL: none does. */
    void (*clear_stream)(sl_attrs *attrs);
    /* Returns the slice's offset and clears what follows from it. Launches that are equal then cost times on a straight line over
     * the offset. NULL: time does not depend on it. */
    int64_t (*clear_slice)(sl_attrs *attrs);
    /* Time is proportional to the length of in[0]: a part of the elements may be timed instead of all. `shorten` fits the attributes
     * to a part (NULL: they fit). */
    bool linear;
    void (*shorten)(sl_attrs *attrs, int64_t count);
    bool any_values;     /* time depends on no operand's values, and no value spoils the result */
    bool representative; /* stands for its category in the load behind which kernels are timed */
    /* Lists the shapes at which benches time the op (ops/shapes.h); NULL: its largest test case. */
    sl_status (*shapes)(sl_op_shapes *shapes);
    /* Operands that need more than normal values, or that belong together. NULL: normal values in all. */
    void (*fill)(sl_launch *launch, const sl_fill_rule *rule);
} sl_op_def;

const sl_op_def *sl_op(sl_op_id id);
/* By name; NULL: no op has it. */
const sl_op_def *sl_op_find(const char *name);
const char *sl_category_name(sl_category category);
sl_op_id sl_op_of_role(sl_op_role role);
/* From SL_ATTRS(op, ...) or NULL. */
sl_attrs sl_op_attrs(sl_op_id id, const void *attrs);
/* Bit k set: out[k] is read before it is written. */
uint32_t sl_op_reads_out(const sl_launch *launch);

#endif
