/*
 * Optimizers: a line in optimizers.def and a file in this folder. The descriptor says how many states an optimizer keeps for each
 * parameter, which options it has, and how they reach the op that updates a run of parameters; program, checkpoints, options and the
 * comparison at resume read all of that from here.
 */
#ifndef SL_OPTIM_OPTIMIZER_H
#define SL_OPTIM_OPTIMIZER_H

#include "ops/op.h"

typedef enum sl_optimizer {
#define SL_OPTIMIZER(ID, name) SL_OPTIMIZER_##ID,
#include "optim/optimizers.def"
#undef SL_OPTIMIZER
    SL_OPTIMIZER_COUNT
} sl_optimizer;

enum { SL_MAX_STATES = SL_MAX_OUT - 2, SL_MAX_OPTIMIZER_OPTIONS = 4, SL_MAX_UPDATE_TENSORS = 8 };
/* The states of a parameter lie in slots, each of one format, so that the parameters of a group may have different optimizers: the first
 * SL_MAX_STATES slots hold numbers of the precision policy's type, the others blocks of 8-bit codes (optim/codes.h). */
enum { SL_STATE_SLOTS = 2 * SL_MAX_STATES };

/* Optimizers that share an option give it the same range, help and fact; the default may differ. */
typedef struct sl_optimizer_option {
    const char *name;  /* of the flag, without dashes */
    const char *value; /* default, as text */
    double low, high;  /* what is allowed */
    const char *fact;  /* what a checkpoint calls it */
    const char *help;
} sl_optimizer_option;

/* What the update of an element depends on. */
typedef enum sl_granularity {
    SL_UPDATE_FLAT,   /* itself: one launch updates any run of elements */
    SL_UPDATE_TENSOR, /* its tensor: one launch updates up to SL_MAX_UPDATE_TENSORS whole tensors */
    SL_UPDATE_MATRIX, /* its matrix: one launch updates matrices of one shape, side by side */
} sl_granularity;

/* A tensor is one of the model's files: q, k and v of a fused weight are three. */
typedef struct sl_update_tensor {
    int64_t rows, columns;
    bool decayed;
} sl_update_tensor;

/* One update. */
typedef struct sl_update {
    const float *options; /* in the order of the descriptor */
    float weight_decay;
    int64_t decayed;     /* the first elements, which get weight decay */
    uint64_t stream;     /* of rounding noise; tensor k of the launch has stream + k */
    bool stochastic;     /* how bf16 is rounded */
    int32_t corrections; /* its row of sl_step_params.corrections */
    int n_tensors;       /* unless flat: at most SL_MAX_UPDATE_TENSORS. Each begins where sl_update_next says */
    const sl_update_tensor *tensors;
} sl_update;

/* Where a tensor begins behind one that ends at this element: the next one that is aligned as parameters are. Tensors that lie
 * elsewhere take another launch. */
static inline SL_HD int64_t sl_update_next(sl_dtype parameter, int64_t end)
{
    const int64_t align = 256 / (parameter == SL_BF16 ? 2 : 4);
    return (end + align - 1) / align * align;
}

typedef struct sl_optimizer_def {
    const char *name, *help;
    sl_op_id op;
    sl_granularity granularity;
    /* Of matrix granularity: what updates the parameters that are no matrices between activations (embeddings, the head, vectors). */
    sl_optimizer others;
    bool device_only; /* its bits depend on the device, so it never runs beside host memory */
    int n_states;
    bool codes; /* states are 8-bit codes, whatever the policy says */
    int n_options;
    sl_optimizer_option options[SL_MAX_OPTIMIZER_OPTIONS];
    void (*set_attrs)(const sl_update *update, sl_attrs *attrs);
    /* Its row of the step's corrections after so many updates, this one included. NULL: it needs none. */
    void (*correct)(const float *options, double updates, float corrections[2]);
} sl_optimizer_def;

const sl_optimizer_def *sl_optimizer_of(sl_optimizer optimizer);
/* The slot of its k-th state. */
static inline int sl_optimizer_slot(const sl_optimizer_def *optimizer, int k)
{
    return optimizer->codes ? SL_MAX_STATES + k : k;
}
/* "moment1", ...: in checkpoints and messages. */
const char *sl_state_name(int slot);
/* What `count` elements take in a slot, where the policy's moments have this type. Elements that begin at a multiple of
 * SL_CODES_BLOCK begin behind what those before them take. */
sl_type sl_state_type(int slot, sl_dtype moments, int64_t count);
/* False: none has that name. */
bool sl_optimizer_find(const char *name, sl_optimizer *optimizer);
/* The values with which an optimizer begins. */
void sl_optimizer_defaults(sl_optimizer optimizer, float options[SL_MAX_OPTIMIZER_OPTIONS]);
/* Place of an option in the descriptor; -1: the optimizer does not have it. */
int sl_optimizer_option_index(sl_optimizer optimizer, const char *name);

#endif
