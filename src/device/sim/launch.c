/* Launches without arithmetic that detect every race. An output becomes a pseudo-random stream seeded by a hash of everything
 * the op may depend on, so one wrong input byte anywhere changes all that follows from it.
 *
 * A launch takes time on a real device. Here it has two moments: at the first it reads its inputs and fills
 * outputs and workspace with noise; at the second it reads everything again and writes. Undisturbed, the two readings agree and
 * the result is that of an instant launch; a command that reads its outputs too early, or writes its inputs, outputs or workspace
 * meanwhile, changes the result. */
#include <string.h>

#include "core/hash.h"
#include "device/sim/sim.h"

/* Fills with a stream that depends on the seed alone. */
static void fill(void *data, size_t bytes, uint64_t seed)
{
    unsigned char *at = data;
    for (size_t i = 0; i < bytes; i += sizeof seed) {
        seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
        uint64_t x = seed;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        x ^= x >> 31;
        memcpy(at + i, &x, SL_MIN(sizeof x, bytes - i));
    }
}

static uint64_t hash_operand(const sl_operand *operand, uint64_t seed)
{
    uint64_t shape[2 + SL_MAX_RANK] = {(uint64_t) operand->type.dtype, (uint64_t) operand->type.rank};
    for (int i = 0; i < operand->type.rank; i++)
        shape[2 + i] = (uint64_t) operand->type.dim[i];
    return sl_hash64(operand->data, sl_type_bytes(&operand->type), sl_hash64(shape, sizeof shape, seed));
}

/* Of all the launch may read. */
static uint64_t hash_inputs(const sl_launch *launch)
{
    uint64_t head[2] = {(uint64_t) launch->op, launch->accumulate};
    uint64_t hash = sl_hash64(&launch->attrs, sizeof launch->attrs, sl_hash64(head, sizeof head, 0));
    uint32_t read = sl_op_reads_out(launch);
    for (int i = 0; i < SL_MAX_IN; i++)
        hash = launch->in[i].data ? hash_operand(&launch->in[i], hash) : hash * 31 + 1;
    for (int k = 0; k < SL_MAX_OUT; k++)
        if (launch->out[k].data && (read >> k & 1))
            hash = hash_operand(&launch->out[k], hash);
    return hash;
}

/* Is this output's memory also an input's? Spoiling it would change what the op reads. */
static bool is_also_read(const sl_launch *launch, int k)
{
    const unsigned char *begin = launch->out[k].data, *end = begin + sl_type_bytes(&launch->out[k].type);
    for (int i = 0; i < SL_MAX_IN; i++) {
        const unsigned char *in = launch->in[i].data;
        if (in && in < end && begin < in + sl_type_bytes(&launch->in[i].type))
            return true;
    }
    return (sl_op_reads_out(launch) >> k) & 1;
}

uint64_t sl_sim_launch_begin(const sl_launch *launch)
{
    uint64_t hash = hash_inputs(launch);
    for (int k = 0; k < SL_MAX_OUT; k++)
        if (launch->out[k].data && !is_also_read(launch, k))
            fill(launch->out[k].data, sl_type_bytes(&launch->out[k].type), ~hash + (uint64_t) k);
    if (launch->workspace)
        fill(launch->workspace, launch->workspace_bytes, hash);
    return hash;
}

void sl_sim_launch_end(const sl_launch *launch, uint64_t begun)
{
    uint64_t hash = hash_inputs(launch), found = 0;
    bool disturbed = hash != begun;
    if (launch->workspace) {
        uint64_t expected[32], at = hash;
        for (size_t i = 0; i < launch->workspace_bytes; i += sizeof expected, at += 32 * 0x9e3779b97f4a7c15u) {
            size_t bytes = SL_MIN(sizeof expected, launch->workspace_bytes - i);
            fill(expected, bytes, at);
            disturbed |= memcmp(expected, (const char *) launch->workspace + i, bytes) != 0;
        }
    }
    if (disturbed)
        found = begun ^ 0xdeadbeef; /* any other value will do: the result is wrong and must show it */
    for (int k = 0; k < SL_MAX_OUT; k++)
        if (launch->out[k].data)
            fill(launch->out[k].data, sl_type_bytes(&launch->out[k].type), hash ^ found ^ ((uint64_t) (k + 1) << 56));
}

void sl_sim_run(const sl_launch *launch)
{
    sl_sim_launch_end(launch, sl_sim_launch_begin(launch));
}
