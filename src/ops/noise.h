/*
 * Random bits by place: which bits an element gets depends on seed, stream, step and its index alone, so any device, thread
 * count or order of work draws the same ones. The deal below is part of the bits of a run.
 *
 * It is laid out for vectors of 16 (or 8) lanes: neighbouring elements take the same word of neighbouring counters, so a
 * kernel runs Philox on 16 counters at once and uses the four words as they come out, without shuffling.
 *
 *     counter_hi = stream << 32 | step        (stream taken modulo 2^32)
 *
 * Rounding noise, 16 bits per element and per tensor `which` (0: parameter, 1: first moment or momentum, 2: second moment).
 * Elements come in blocks of 128; element 128*b + 16*k + lane, k in 0..7, takes of the counter
 *     key = seed,  counter_lo = 16*b + lane
 * word k % 4 of the tensor's four, its low half if k < 4, else its high half. Philox with 7 rounds gives the words a, b, c, d;
 * the tensors' are
 *
 *     parameter          a        b        c        d
 *     first moment       a^d      b^c      a^b^c    a^b^d
 *     second moment      a^c^d    b^c^d    a^c      b^d
 *
 * Drawing twelve words of their own took more instructions than the update itself. No two of these twelve are equal, no line
 * and no column depends linearly on itself. So if a, b, c, d are uniform and independent, then each noise is uniform (rounding is
 * unbiased), all noises of a tensor are independent, those of an element's three tensors are, and so are any two. What remains
 * are threes: the parameters' noises of an element and of the one 16 further know a moment's of a third, which neither ever meets.
 *
 * Dropout, 32 bits per element. Elements come in blocks of 64; element 64*b + 16*k + lane, k in 0..3, takes word k of
 *     key = ~seed,  counter_lo = 16*b + lane
 */
#ifndef SL_OPS_NOISE_H
#define SL_OPS_NOISE_H

#include "core/rng.h"
#include "ops/op.h"

#define SL_NOISE_BLOCK 128
#define SL_DROPOUT_BLOCK 64
#define SL_NOISE_LANES 16
#define SL_NOISE_ROUNDS 7
#define SL_NOISE_TENSORS 3

static inline SL_HD uint64_t sl_noise_seed(const sl_step_params *step)
{
    return (uint64_t) step->seed_hi << 32 | step->seed_lo;
}

static inline SL_HD uint64_t sl_noise_counter_hi(uint64_t stream, uint32_t step)
{
    return stream << 32 | step;
}

/* The four words of tensor `which`, of those Philox gave. */
static inline SL_HD sl_rng4 sl_noise_deal(sl_rng4 from, int which)
{
    const uint32_t a = from.v[0], b = from.v[1], c = from.v[2], d = from.v[3];
    sl_rng4 out = from;
    if (which == 1)
        out.v[0] = a ^ d, out.v[1] = b ^ c, out.v[2] = a ^ b ^ c, out.v[3] = a ^ b ^ d;
    else if (which == 2)
        out.v[0] = a ^ c ^ d, out.v[1] = b ^ c ^ d, out.v[2] = a ^ c, out.v[3] = b ^ d;
    return out;
}

/* 16 bits for stochastic rounding. */
static inline SL_HD uint32_t sl_rounding_noise(const sl_step_params *step, uint64_t stream, int which, int64_t element)
{
    uint64_t block = (uint64_t) element / SL_NOISE_BLOCK, lane = (uint64_t) element % SL_NOISE_LANES;
    uint64_t k = (uint64_t) element % SL_NOISE_BLOCK / SL_NOISE_LANES;
    sl_rng4 drawn = sl_philox_rounds(sl_noise_seed(step), block * SL_NOISE_LANES + lane,
                                     sl_noise_counter_hi(stream, step->step), SL_NOISE_ROUNDS);
    sl_rng4 words = sl_noise_deal(drawn, which);
    return k < 4 ? words.v[k] & 0xffffu : words.v[k - 4] >> 16;
}

/* Uniform in [0, 1): an element is kept where it is >= probability. */
static inline SL_HD float sl_dropout_uniform(const sl_step_params *step, uint32_t stream, int64_t element)
{
    uint64_t block = (uint64_t) element / SL_DROPOUT_BLOCK, lane = (uint64_t) element % SL_NOISE_LANES;
    uint64_t k = (uint64_t) element % SL_DROPOUT_BLOCK / SL_NOISE_LANES;
    sl_rng4 words =
        sl_philox(~sl_noise_seed(step), block * SL_NOISE_LANES + lane, sl_noise_counter_hi(stream, step->step));
    return sl_rng_uniform(words.v[k]);
}

#endif
