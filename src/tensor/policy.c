#include "tensor/policy.h"

#include <string.h>

#include "core/status.h"

static const sl_policy policies[SL_PRECISION_COUNT] = {
#define SL_POLICY(ID, name, compute, moments, master, stochastic) {name, compute, moments, master, stochastic},
#include "tensor/policies.def"
#undef SL_POLICY
};

const sl_policy *sl_policy_of(sl_precision precision)
{
    SL_ASSERT((int) precision >= 0 && precision < SL_PRECISION_COUNT);
    return &policies[precision];
}

const char *sl_precision_name(sl_precision precision)
{
    return sl_policy_of(precision)->name;
}

bool sl_precision_find(const char *name, sl_precision *precision)
{
    for (int i = 0; i < SL_PRECISION_COUNT; i++)
        if (strcmp(policies[i].name, name) == 0)
            return *precision = (sl_precision) i, true;
    return false;
}
