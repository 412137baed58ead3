/* The table of optimizers. */
#include "optim/optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "optim/codes.h"

#define SL_OPTIMIZER(ID, name) extern const sl_optimizer_def sl_optimizer_##name;
#include "optim/optimizers.def"
#undef SL_OPTIMIZER

static const sl_optimizer_def *const optimizers[SL_OPTIMIZER_COUNT] = {
#define SL_OPTIMIZER(ID, name) &sl_optimizer_##name,
#include "optim/optimizers.def"
#undef SL_OPTIMIZER
};

const sl_optimizer_def *sl_optimizer_of(sl_optimizer optimizer)
{
    SL_ASSERT((int) optimizer >= 0 && optimizer < SL_OPTIMIZER_COUNT);
    return optimizers[optimizer];
}

const char *sl_state_name(int slot)
{
    static const char *const names[SL_STATE_SLOTS] = {"moment1", "moment2", "moment1.codes", "moment2.codes"};
    return names[slot];
}

sl_type sl_state_type(int slot, sl_dtype moments, int64_t count)
{
    return slot < SL_MAX_STATES ? sl_type_1d(moments, count) : sl_codes_type(count);
}

bool sl_optimizer_find(const char *name, sl_optimizer *optimizer)
{
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++)
        if (strcmp(optimizers[i]->name, name) == 0)
            return *optimizer = (sl_optimizer) i, true;
    return false;
}

void sl_optimizer_defaults(sl_optimizer optimizer, float options[SL_MAX_OPTIMIZER_OPTIONS])
{
    const sl_optimizer_def *def = sl_optimizer_of(optimizer);
    for (int i = 0; i < SL_MAX_OPTIMIZER_OPTIONS; i++)
        options[i] = i < def->n_options ? (float) strtod(def->options[i].value, NULL) : 0;
}

int sl_optimizer_option_index(sl_optimizer optimizer, const char *name)
{
    const sl_optimizer_def *def = sl_optimizer_of(optimizer);
    for (int i = 0; i < def->n_options; i++)
        if (strcmp(def->options[i].name, name) == 0)
            return i;
    return -1;
}
