/* Precision policies: which values have which type. policies.def lists them. */
#ifndef SL_TENSOR_POLICY_H
#define SL_TENSOR_POLICY_H

#include "tensor/dtype.h"

typedef enum sl_precision {
#define SL_POLICY(ID, name, compute, moments, master, stochastic) SL_PRECISION_##ID,
#include "tensor/policies.def"
#undef SL_POLICY
    SL_PRECISION_COUNT
} sl_precision;

typedef struct sl_policy {
    const char *name; /* as --precision takes it */
    sl_dtype compute, moments;
    bool master, stochastic;
} sl_policy;

const sl_policy *sl_policy_of(sl_precision precision);
const char *sl_precision_name(sl_precision precision);
/* False: no policy has that name. */
bool sl_precision_find(const char *name, sl_precision *precision);

#endif
