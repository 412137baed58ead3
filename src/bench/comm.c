/*
 * Forward pass of one block over B tokens, N = shards * tensor devices, rates C (arithmetic) and W (one axis):
 *
 *   arithmetic        4 B D F / (N C)
 *   gather weights    4 D F / (tensor W axes_data)        two bf16 matrices, each device holding 1/shards of its part
 *   gather tokens     4 B D / (shards W axes_tensor)      bf16 in, bf16 out
 *
 * A phase is hidden while it is shorter than the arithmetic.
 */
#include "bench/comm.h"

#include <math.h>

double sl_comm_ring_s(int64_t devices, double bytes, double link)
{
    return devices > 1 ? 2 * (double) (devices - 1) / (double) devices * bytes / link : 0;
}

double sl_comm_data_tokens(const sl_comm_mesh *m)
{
    return m->flops / (m->link * m->axes_data);
}

double sl_comm_tensor_degree(const sl_comm_mesh *m)
{
    return m->axes_tensor * (double) m->ffn * m->link / m->flops;
}

double sl_comm_both_tokens(const sl_comm_mesh *m)
{
    double intensity = m->flops / m->link;
    return intensity * intensity / (m->axes_data * m->axes_tensor * (double) m->ffn);
}

double sl_comm_given_tokens(const sl_comm_mesh *m)
{
    if ((double) m->tensor > sl_comm_tensor_degree(m))
        return INFINITY; /* gathering tokens takes longer at any batch */
    return sl_comm_data_tokens(m) / (double) m->tensor;
}
