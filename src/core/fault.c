/* Each kind has a count of events and the number of the one that fails. Nothing armed anywhere: one relaxed load. */
#include "core/fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_int armed_kinds; /* bit per kind */
static atomic_llong events[SL_FAULT_COUNT], target[SL_FAULT_COUNT];

static const char *const names[SL_FAULT_COUNT] = {
#define X(name, text) text,
    SL_FAULT_LIST(X)
#undef X
};

/* Arming with INT64_MAX counts without failing: how a test learns how many failures there are to walk through. */
void sl_fault_arm(sl_fault_kind kind, int64_t nth)
{
    atomic_store(&events[kind], 0);
    atomic_store(&target[kind], nth);
    if (nth > 0)
        atomic_fetch_or(&armed_kinds, 1 << kind);
    else
        atomic_fetch_and(&armed_kinds, ~(1 << kind));
}

int64_t sl_fault_events(sl_fault_kind kind)
{
    return atomic_load(&events[kind]);
}

bool sl_fault_hit(sl_fault_kind kind)
{
    if (!(atomic_load_explicit(&armed_kinds, memory_order_relaxed) & (1 << kind)))
        return false;
    return atomic_fetch_add(&events[kind], 1) + 1 == atomic_load(&target[kind]);
}

static sl_status arm_one(const char *text, size_t length)
{
    for (int kind = 0; kind < SL_FAULT_COUNT; kind++) {
        size_t name_length = strlen(names[kind]);
        if (length <= name_length + 1 || strncmp(text, names[kind], name_length) != 0 || text[name_length] != ':')
            continue;
        char *end;
        long long nth = strtoll(text + name_length + 1, &end, 10);
        if (end == text + length && nth > 0) {
            sl_fault_arm((sl_fault_kind) kind, nth);
            return SL_OK;
        }
    }
    return sl_fail(
        SL_E_USAGE,
        "SLUICE_FAULT: \"%.*s\" is not KIND:N with N from 1 and a KIND of alloc, open, read, write, sync, rename",
        (int) SL_MIN(length, (size_t) 80), text);
}

sl_status sl_fault_arm_from_env(void)
{
    const char *text = getenv("SLUICE_FAULT");
    while (text && *text) {
        size_t length = strcspn(text, ",");
        SL_TRY(arm_one(text, length));
        text += length + (text[length] == ',');
    }
    return SL_OK;
}
