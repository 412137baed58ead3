/*
 * Optimizers: a line in optimizers.def and a file in this folder. The descriptor says which states an optimizer keeps for each
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

enum { SL_MAX_STATES = SL_MAX_OUT - 2, SL_MAX_OPTIMIZER_OPTIONS = 4 };

/* Optimizers that share an option give it the same range, help and fact. */
typedef struct sl_optimizer_option {
    const char *name;  /* of the flag, without dashes */
    const char *value; /* default, as text */
    double low, high;  /* what is allowed */
    const char *fact;  /* what a checkpoint calls it */
    const char *help;
} sl_optimizer_option;

/* One update. */
typedef struct sl_update {
    const float *options; /* in the order of the descriptor */
    float weight_decay;
    int64_t decayed; /* the first elements, which get weight decay */
    uint64_t stream; /* of rounding noise */
    bool stochastic; /* how bf16 is rounded */
} sl_update;

typedef struct sl_optimizer_def {
    const char *name, *help;
    sl_op_id op;
    int n_states;
    const char *states[SL_MAX_STATES]; /* names in checkpoints */
    int n_options;
    sl_optimizer_option options[SL_MAX_OPTIMIZER_OPTIONS];
    void (*set_attrs)(const sl_update *update, sl_attrs *attrs);
    /* Its part of the step parameters: corrections after so many updates, this one included. NULL: none. */
    void (*set_step)(const float *options, double updates, sl_step_params *step);
} sl_optimizer_def;

const sl_optimizer_def *sl_optimizer_of(sl_optimizer optimizer);
/* False: none has that name. */
bool sl_optimizer_find(const char *name, sl_optimizer *optimizer);
/* The values with which an optimizer begins. */
void sl_optimizer_defaults(sl_optimizer optimizer, float options[SL_MAX_OPTIMIZER_OPTIONS]);
/* Place of an option in the descriptor; -1: the optimizer does not have it. */
int sl_optimizer_option_index(sl_optimizer optimizer, const char *name);

#endif
