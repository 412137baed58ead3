/* A few dozen signatures per job: a list, searched from the front. */
#include "train/cost_memo.h"

#include <string.h>

#include "core/hash.h"
#include "cost/cost.h"

typedef struct sl_cost_entry {
    uint64_t key;
    double device_s, host_s;
    size_t workspace[SL_TIER_COUNT];
} sl_cost_entry;

/* What a signature's cost depends on: its launch. */
static uint64_t key_of(const sl_program *program, int32_t signature)
{
    sl_launch launch;
    sl_costs_launch(program, signature, &launch);
    bool host = program->tasks[program->signatures[signature].example].host_allowed;
    sl_hasher hasher;
    sl_hash_begin(&hasher, host);
    sl_hash_add(&hasher, &launch.op, sizeof launch.op);
    sl_hash_add(&hasher, &launch.accumulate, sizeof launch.accumulate);
    sl_hash_add(&hasher, &launch.attrs, sizeof launch.attrs);
    sl_hash_add(&hasher, &launch.workspace_bytes, sizeof launch.workspace_bytes);
    for (int i = 0; i < SL_MAX_IN; i++)
        sl_hash_add(&hasher, &launch.in[i].type, sizeof launch.in[i].type);
    for (int k = 0; k < SL_MAX_OUT; k++)
        sl_hash_add(&hasher, &launch.out[k].type, sizeof launch.out[k].type);
    return sl_hash_end(&hasher);
}

static const sl_cost_entry *find(const sl_cost_memo *memo, uint64_t key)
{
    for (int64_t i = 0; i < memo->count; i++)
        if (memo->entries[i].key == key)
            return &memo->entries[i];
    return NULL;
}

sl_status sl_cost_memo_get(const sl_cost_memo *memo, const sl_program *program, sl_costs **out)
{
    sl_costs *costs;
    *out = NULL;
    if (memo->count == 0)
        return SL_OK;
    SL_TRY(sl_costs_new(program->n_signatures, &costs));
    sl_costs arrays = *costs;
    *costs = memo->machine;
    costs->n_signatures = arrays.n_signatures;
    costs->device_s = arrays.device_s;
    costs->host_s = arrays.host_s;
    memcpy(costs->workspace, arrays.workspace, sizeof costs->workspace);
    for (int32_t signature = 0; signature < program->n_signatures; signature++) {
        const sl_cost_entry *entry = find(memo, key_of(program, signature));
        if (!entry) {
            sl_costs_destroy(costs);
            return SL_OK;
        }
        costs->device_s[signature] = entry->device_s;
        costs->host_s[signature] = entry->host_s;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            costs->workspace[tier][signature] = entry->workspace[tier];
    }
    *out = costs;
    return SL_OK;
}

sl_status sl_cost_memo_add(sl_cost_memo *memo, const sl_program *program, const sl_costs *costs)
{
    if (memo->count == 0)
        memo->machine = *costs;
    for (int32_t signature = 0; signature < program->n_signatures; signature++) {
        sl_cost_entry entry = {key_of(program, signature), costs->device_s[signature], costs->host_s[signature], {0}};
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            entry.workspace[tier] = costs->workspace[tier][signature];
        if (find(memo, entry.key))
            continue;
        if (memo->count == memo->capacity) {
            int64_t capacity = memo->capacity ? 2 * memo->capacity : 64;
            SL_TRY(sl_grow(&memo->entries, memo->capacity, capacity, sizeof entry));
            memo->capacity = capacity;
        }
        memo->entries[memo->count++] = entry;
    }
    return SL_OK;
}

void sl_cost_memo_free(sl_cost_memo *memo)
{
    sl_free(memo->entries);
    *memo = (sl_cost_memo){0};
}
