/* What communication costs, on paper: the calculators of D6. Rates in bytes/s and FLOP/s, bf16 activations and weights
 * moved. */
#ifndef SL_BENCH_COMM_H
#define SL_BENCH_COMM_H

#include <stdint.h>

/* A ring all-reduce of `bytes` over `devices`, each sending `link` bytes/s: all but a device's share passes twice. */
double sl_comm_ring_s(int64_t devices, double bytes, double link);

/* A feed-forward stack x -> W2 act(W1 x), split `shards` ways over data and weights (FSDP) and `tensor` ways over the
 * hidden dimension (TP); the mesh has `axes_*` links for each. */
typedef struct sl_comm_mesh {
    double flops, link;            /* of one device, one axis */
    double axes_data, axes_tensor; /* mesh axes given to each */
    int64_t dim, ffn, shards, tensor;
} sl_comm_mesh;

/* Tokens per device from which a data-parallel or fully sharded step is bound by arithmetic. */
double sl_comm_data_tokens(const sl_comm_mesh *mesh);
/* Tensor-parallel degree up to which it is. */
double sl_comm_tensor_degree(const sl_comm_mesh *mesh);
/* Tokens per device when both are used, the split chosen best; and with the split as given. */
double sl_comm_both_tokens(const sl_comm_mesh *mesh);
double sl_comm_given_tokens(const sl_comm_mesh *mesh);
#endif
