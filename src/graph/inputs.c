#include "graph/inputs.h"

#include "core/status.h"

static const sl_input_def table[SL_INPUT_COUNT] = {
#define SL_INPUT(ID, name, dtype, rows, least, most, scope, target) \
    [SL_INPUT_##ID] = {name, SL_##dtype, SL_ROWS_##rows, least, most, SL_PER_##scope, target},
#include "graph/inputs.def"
#undef SL_INPUT
};

const sl_input_def *sl_input_of(sl_input_kind kind)
{
    SL_ASSERT((int) kind >= 0 && kind < SL_INPUT_COUNT);
    return &table[kind];
}
