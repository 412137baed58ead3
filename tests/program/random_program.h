/* Random models and ways to train them, small enough to look at every byte of their programs. */
#ifndef SL_TESTS_RANDOM_PROGRAM_H
#define SL_TESTS_RANDOM_PROGRAM_H

#include "core/rng.h"
#include "model/model.h"
#include "program/program.h"
#include "test.h"

static uint64_t random_state;
static inline int64_t pick(int64_t least, int64_t most)
{
    sl_rng4 r = sl_philox(99, random_state++, 0);
    return least + (int64_t) (r.v[0] % (uint32_t) (most - least + 1));
}

static inline sl_model random_model(void)
{
    sl_model model;
    bool llama = pick(0, 1);
    CHECK_OK(sl_model_find(llama ? "byte-test" : "gpt2", &model));
    model.layers = pick(1, 3);
    model.kv_heads = pick(1, 2);
    model.heads = model.kv_heads * pick(1, 2);
    model.head_dim = 2 * pick(1, 5);
    model.ffn = pick(1, 40);
    model.vocab = pick(2, 70);
    model.tied = pick(0, 1);
    model.dim = pick(1, 40);
    if (!llama) {
        model.kv_heads = model.heads;
        model.dim = model.heads * model.head_dim;
        model.max_seqlen = 64;
        model.dropout = pick(0, 1) ? 0.1f : 0;
    }
    return model;
}

static inline sl_program_config random_config(void)
{
    sl_program_config config = {.precision = (sl_precision) pick(0, 2),
                                .optimizer = (sl_optimizer) pick(0, 1),
                                .gated = pick(0, 1),
                                .norm = pick(0, 1),
                                .forward_only = pick(0, 4) == 0,
                                .max_segments = pick(1, 5),
                                .chunks_per_round = pick(0, 5)};
    config.chunking.seqlen = pick(1, 24);
    config.chunking.sequences = pick(1, 7);
    config.chunking.chunk_tokens = pick(0, 1) ? config.chunking.seqlen * pick(1, 4) : pick(1, config.chunking.seqlen);
    return config;
}

#endif
