/* Test cases of attention and its backward. For ops/attention.c alone. */
#ifndef SL_OPS_ATTENTION_CASES_H
#define SL_OPS_ATTENTION_CASES_H

#include "ops/attention.h"
#include "ops/common.h"

/* Each line of shapes serves forward and backward: X(name, dtype, n, m, heads, kv_heads, head_dim, causal, offset, boundaries,
 * sequences, accumulate, wide). */
#define SHAPES(X)                                                                        \
    X("f32 causal", SL_F32, 17, 17, 2, 2, 8, 1, 0, 2, 1, 0, 0)                           \
    X("f32 full", SL_F32, 17, 17, 2, 2, 8, 0, 0, 2, 1, 0, 0)                             \
    X("f32 one row", SL_F32, 1, 1, 1, 1, 5, 1, 0, 2, 1, 0, 0)                            \
    X("f32 grouped, odd head", SL_F32, 33, 33, 6, 2, 13, 1, 0, 2, 1, 0, 0)               \
    X("f32 packed", SL_F32, 61, 61, 4, 2, 16, 1, 0, 5, 4, 0, 0)                          \
    X("f32 packed, padded boundaries", SL_F32, 61, 61, 4, 1, 16, 1, 0, 9, 5, 2, 0)       \
    X("f32 packed, full", SL_F32, 75, 75, 2, 1, 24, 0, 0, 4, 3, 0, 0)                    \
    X("f32 slice", SL_F32, 30, 100, 4, 2, 16, 1, 70, 2, 1, 2, 0)                         \
    X("f32 slice, one query", SL_F32, 1, 90, 2, 2, 16, 1, 89, 2, 1, 0, 0)                \
    X("f32 slice, rows behind it", SL_F32, 20, 80, 2, 1, 16, 1, 33, 2, 1, 0, 0)          \
    X("f32 slice of packed", SL_F32, 50, 130, 2, 2, 32, 1, 80, 5, 4, 2, 0)               \
    X("f32 blocks", SL_F32, 140, 210, 2, 1, 64, 1, 70, 2, 1, 0, 0)                       \
    X("f32 many heads, blocks, packed", SL_F32, 210, 210, 8, 4, 32, 1, 0, 5, 3, 2, 0)    \
    X("f32 many heads, full", SL_F32, 130, 130, 8, 8, 24, 0, 0, 2, 1, 0, 0)              \
    X("f32 wide head", SL_F32, 20, 70, 2, 1, 256, 1, 50, 2, 1, 0, 0)                     \
    X("bf16 many heads, slice, dkv f32", SL_BF16, 90, 200, 8, 8, 16, 1, 110, 2, 1, 2, 1) \
    X("bf16 many heads, packed", SL_BF16, 200, 200, 8, 2, 64, 1, 0, 9, 6, 0, 0)          \
    X("bf16 causal", SL_BF16, 65, 65, 4, 2, 64, 1, 0, 2, 1, 0, 0)                        \
    X("bf16 full", SL_BF16, 40, 40, 2, 2, 32, 0, 0, 2, 1, 0, 0)                          \
    X("bf16 odd head, packed", SL_BF16, 49, 49, 4, 2, 20, 1, 0, 7, 4, 0, 0)              \
    X("bf16 slice, dkv f32", SL_BF16, 60, 190, 4, 1, 64, 1, 130, 2, 1, 2, 1)             \
    X("bf16 slice, dkv f32, written", SL_BF16, 30, 80, 2, 2, 16, 1, 40, 2, 1, 0, 1)      \
    X("bf16 slice, accumulate", SL_BF16, 40, 70, 2, 2, 32, 1, 30, 2, 1, 2, 0)            \
    X("bf16 blocks", SL_BF16, 170, 170, 2, 1, 128, 1, 0, 3, 2, 0, 0)

/* Sequences of one length, which devices may treat apart; with kv and without: X(name, dtype, sequences, length, heads, kv_heads,
 * head_dim, causal). */
#define ALIKE(X)                                            \
    X("f32 two alike", SL_F32, 2, 20, 2, 1, 16, 1)          \
    X("bf16 one, odd length", SL_BF16, 1, 131, 4, 2, 64, 1) \
    X("bf16 three alike", SL_BF16, 3, 64, 4, 4, 64, 1)      \
    X("bf16 two alike, full", SL_BF16, 2, 72, 2, 2, 32, 0)  \
    X("bf16 two alike, wide head", SL_BF16, 2, 96, 4, 1, 128, 1)

/* Slices that are one sequence's alone, which devices may treat apart: X(name, dtype, n, offset, heads, kv_heads, head_dim, accumulate,
 * wide, nondeterministic). */
#define LONE(X)                                                                 \
    X("f32 lone slice", SL_F32, 24, 40, 4, 2, 16, 0, 0, 0)                      \
    X("bf16 lone slice", SL_BF16, 64, 128, 4, 2, 64, 0, 0, 0)                   \
    X("bf16 lone slice, dkv f32", SL_BF16, 72, 72, 4, 4, 128, 2, 1, 0)          \
    X("bf16 lone slice, odd length", SL_BF16, 61, 83, 8, 2, 32, 2, 0, 0)        \
    X("bf16 lone slice, nondeterministic", SL_BF16, 64, 128, 4, 2, 64, 2, 0, 1) \
    X("bf16 lone slice, any order, odd", SL_BF16, 61, 83, 8, 2, 32, 0, 1, 1)    \
    X("bf16 lone sequence, nondeterministic", SL_BF16, 192, 0, 4, 1, 128, 0, 0, 1)

/* Without kv alone: X(name, dtype, n, heads, kv_heads, head_dim, causal, boundaries, sequences). */
#define TOGETHER(X)                                                           \
    X("f32 qkv in place, packed", SL_F32, 61, 4, 2, 16, 1, 5, 4)              \
    X("f32 qkv in place, odd head, full", SL_F32, 33, 6, 2, 13, 0, 2, 1)      \
    X("f32 qkv in place, many heads, packed", SL_F32, 150, 8, 8, 24, 1, 5, 3) \
    X("bf16 qkv in place, odd head, packed", SL_BF16, 49, 4, 2, 20, 1, 7, 4)  \
    X("bf16 qkv in place, many heads, packed", SL_BF16, 200, 12, 12, 64, 1, 6, 4)

/* Windows and soft caps: X(name, dtype, n, m, heads, kv_heads, head_dim, causal, offset, boundaries, sequences, accumulate, wide,
 * window, cap). Windows are shorter than a block of keys, longer, and as long as the sequence. */
#define VARIANTS(X)                                                                           \
    X("f32 window", SL_F32, 17, 17, 2, 2, 8, 1, 0, 2, 1, 0, 0, 5, 0)                          \
    X("f32 window of two", SL_F32, 9, 9, 2, 1, 8, 1, 0, 2, 1, 0, 0, 2, 0)                     \
    X("f32 window, packed", SL_F32, 61, 61, 4, 2, 16, 1, 0, 5, 4, 0, 0, 7, 0)                 \
    X("f32 window, full, packed", SL_F32, 75, 75, 2, 1, 24, 0, 0, 4, 3, 0, 0, 9, 0)           \
    X("f32 window, slice", SL_F32, 30, 100, 4, 2, 16, 1, 70, 2, 1, 2, 0, 20, 0)               \
    X("f32 window, slice, written", SL_F32, 30, 200, 4, 2, 16, 1, 170, 2, 1, 0, 0, 41, 0)     \
    X("f32 window, slice of packed", SL_F32, 50, 130, 2, 2, 32, 1, 80, 5, 4, 2, 0, 25, 0)     \
    X("f32 window, blocks", SL_F32, 300, 300, 2, 1, 64, 1, 0, 2, 1, 0, 0, 100, 0)             \
    X("f32 window, many heads, packed", SL_F32, 290, 290, 8, 8, 24, 1, 0, 3, 2, 0, 0, 70, 0)  \
    X("f32 window of the sequence", SL_F32, 40, 40, 2, 1, 16, 1, 0, 2, 1, 0, 0, 40, 0)        \
    X("f32 soft cap", SL_F32, 17, 17, 2, 2, 8, 1, 0, 2, 1, 0, 0, 0, 0.8f)                     \
    X("f32 soft cap, full, packed", SL_F32, 75, 75, 8, 4, 24, 0, 0, 4, 3, 0, 0, 0, 3.0f)      \
    X("f32 soft cap, high", SL_F32, 33, 33, 6, 2, 13, 1, 0, 2, 1, 0, 0, 0, 50.0f)             \
    X("f32 soft cap, window, slice", SL_F32, 90, 200, 8, 8, 16, 1, 110, 2, 1, 2, 0, 33, 1.5f) \
    X("bf16 window, blocks", SL_BF16, 170, 170, 2, 1, 128, 1, 0, 3, 2, 0, 0, 30, 0)           \
    X("bf16 window, slice, dkv f32", SL_BF16, 60, 190, 4, 1, 64, 1, 130, 2, 1, 2, 1, 90, 0)   \
    X("bf16 soft cap", SL_BF16, 65, 65, 4, 2, 64, 1, 0, 2, 1, 0, 0, 0, 2.0f)                  \
    X("bf16 soft cap, window, many heads", SL_BF16, 200, 200, 8, 8, 64, 1, 0, 9, 6, 0, 0, 17, 1.0f)

#define ATTRS(h, g, e, is_causal, offset, alike)                                                                    \
    .attrs = SL_ATTRS(attention, .heads = h, .kv_heads = g, .head_dim = e, .causal = is_causal, .q_offset = offset, \
                      .scale = e == 64 ? 0.125f : 0.21f, .uniform = alike)
#define VARIANT_ATTRS(h, g, e, is_causal, offset, rows, soft)                                                       \
    .attrs = SL_ATTRS(attention, .heads = h, .kv_heads = g, .head_dim = e, .causal = is_causal, .q_offset = offset, \
                      .scale = e == 64 ? 0.125f : 0.21f, .window = rows, .cap = soft)
#define LONE_ATTRS(h, g, e, n, offset, any)                                                                 \
    .attrs = SL_ATTRS(attention, .heads = h, .kv_heads = g, .head_dim = e, .causal = 1, .q_offset = offset, \
                      .scale = e == 64 ? 0.125f : 0.21f, .nondeterministic = any, .uniform = (n) + (offset))

static const sl_op_case attention_cases[] = {
#define X(label, t, n, m, h, g, e, is_causal, offset, boundaries, sequences, acc, wide)     \
    {.name = label,                                                                         \
     .in = {SL_T2(t, n, (h) * (e)), SL_T2(t, m, 2 * (g) * (e)), SL_T1(SL_I32, boundaries)}, \
     .segments = sequences,                                                                 \
     ATTRS(h, g, e, is_causal, offset, 0)},
    SHAPES(X)
#undef X
#define X(label, t, n, m, h, g, e, is_causal, offset, boundaries, sequences, acc, wide, rows, soft) \
    {.name = label,                                                                                 \
     .in = {SL_T2(t, n, (h) * (e)), SL_T2(t, m, 2 * (g) * (e)), SL_T1(SL_I32, boundaries)},         \
     .segments = sequences,                                                                         \
     VARIANT_ATTRS(h, g, e, is_causal, offset, rows, soft)},
        VARIANTS(X)
#undef X
#define X(label, t, n, offset, h, g, e, acc, wide, any)                                         \
    {.name = label,                                                                             \
     .in = {SL_T2(t, n, (h) * (e)), SL_T2(t, (n) + (offset), 2 * (g) * (e)), SL_T1(SL_I32, 2)}, \
     .segments = 1,                                                                             \
     LONE_ATTRS(h, g, e, n, offset, any)},
            LONE(X)
#undef X
#define X(label, t, n, h, g, e, is_causal, boundaries, sequences)                        \
    {.name = label,                                                                      \
     .in = {SL_T2(t, n, ((h) + 2 * (g)) * (e)), {t, 0, {0}}, SL_T1(SL_I32, boundaries)}, \
     .segments = sequences,                                                              \
     ATTRS(h, g, e, is_causal, 0, 0)},
                TOGETHER(X)
#undef X
#define X(label, t, sequences, n, h, g, e, is_causal)                                                             \
    {.name = label,                                                                                               \
     .in = {SL_T2(t, (sequences) * (n), (h) * (e)), SL_T2(t, (sequences) * (n), 2 * (g) * (e)),                   \
            SL_T1(SL_I32, (sequences) + 1)},                                                                      \
     .segments = sequences,                                                                                       \
     ATTRS(h, g, e, is_causal, 0, n)},                                                                            \
        {.name = label ", qkv in place",                                                                          \
         .in = {SL_T2(t, (sequences) * (n), ((h) + 2 * (g)) * (e)), {t, 0, {0}}, SL_T1(SL_I32, (sequences) + 1)}, \
         .segments = sequences,                                                                                   \
         ATTRS(h, g, e, is_causal, 0, n)},
                    ALIKE(X)
#undef X
};

static const sl_op_case attention_bwd_cases[] = {
#define X(label, t, n, m, h, g, e, is_causal, offset, boundaries, sequences, acc, wide)                         \
    {.name = label,                                                                                             \
     .in = {SL_T2(t, n, (h) * (e)), SL_T2(t, n, (h) * (e)), SL_T2(t, m, 2 * (g) * (e)), SL_T2(t, n, (h) * (e)), \
            SL_T2(SL_F32, h, n), SL_T1(SL_I32, boundaries)},                                                    \
     .segments = sequences,                                                                                     \
     .accumulate = acc,                                                                                         \
     .wide_out = wide,                                                                                          \
     ATTRS(h, g, e, is_causal, offset, 0)},
    SHAPES(X)
#undef X
#define X(label, t, n, m, h, g, e, is_causal, offset, boundaries, sequences, acc, wide, rows, soft)             \
    {.name = label,                                                                                             \
     .in = {SL_T2(t, n, (h) * (e)), SL_T2(t, n, (h) * (e)), SL_T2(t, m, 2 * (g) * (e)), SL_T2(t, n, (h) * (e)), \
            SL_T2(SL_F32, h, n), SL_T1(SL_I32, boundaries)},                                                    \
     .segments = sequences,                                                                                     \
     .accumulate = acc,                                                                                         \
     .wide_out = wide,                                                                                          \
     VARIANT_ATTRS(h, g, e, is_causal, offset, rows, soft)},
        VARIANTS(X)
#undef X
#define X(label, t, n, offset, h, g, e, acc, wide, any)                                              \
    {.name = label,                                                                                  \
     .in = {SL_T2(t, n, (h) * (e)), SL_T2(t, n, (h) * (e)), SL_T2(t, (n) + (offset), 2 * (g) * (e)), \
            SL_T2(t, n, (h) * (e)), SL_T2(SL_F32, h, n), SL_T1(SL_I32, 2)},                          \
     .segments = 1,                                                                                  \
     .accumulate = acc,                                                                              \
     .wide_out = wide,                                                                               \
     LONE_ATTRS(h, g, e, n, offset, any)},
            LONE(X)
#undef X
#define BWD(t, n, h, e) SL_T2(t, n, (h) * (e)), SL_T2(SL_F32, h, n)
#define X(label, t, n, h, g, e, is_causal, boundaries, sequences) \
    {.name = label,                                               \
     .in = {SL_T2(t, n, (h) * (e)),                               \
            SL_T2(t, n, ((h) + 2 * (g)) * (e)),                   \
            {t, 0, {0}},                                          \
            BWD(t, n, h, e),                                      \
            SL_T1(SL_I32, boundaries)},                           \
     .segments = sequences,                                       \
     ATTRS(h, g, e, is_causal, 0, 0)},
                TOGETHER(X)
#undef X
#define X(label, t, sequences, n, h, g, e, is_causal)                                       \
    {.name = label,                                                                         \
     .in = {SL_T2(t, (sequences) * (n), (h) * (e)), SL_T2(t, (sequences) * (n), (h) * (e)), \
            SL_T2(t, (sequences) * (n), 2 * (g) * (e)), BWD(t, (sequences) * (n), h, e),    \
            SL_T1(SL_I32, (sequences) + 1)},                                                \
     .segments = sequences,                                                                 \
     ATTRS(h, g, e, is_causal, 0, n)},                                                      \
        {.name = label ", qkv in place",                                                    \
         .in = {SL_T2(t, (sequences) * (n), (h) * (e)),                                     \
                SL_T2(t, (sequences) * (n), ((h) + 2 * (g)) * (e)),                         \
                {t, 0, {0}},                                                                \
                BWD(t, (sequences) * (n), h, e),                                            \
                SL_T1(SL_I32, (sequences) + 1)},                                            \
         .segments = sequences,                                                             \
         ATTRS(h, g, e, is_causal, 0, n)},
                    ALIKE(X)
#undef X
};
#undef SHAPES
#undef VARIANTS
#undef VARIANT_ATTRS
#undef TOGETHER
#undef ALIKE
#undef LONE
#undef BWD
#undef ATTRS
#undef LONE_ATTRS

#endif
