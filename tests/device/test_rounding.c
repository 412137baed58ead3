/*
 * Stochastic rounding in the updates, through the references and every CPU kernel: the noise of any two elements, tensors, blocks,
 * steps, streams and seeds is independent, and values that have no upper neighbour to go to stay what they are.
 *
 * Kernels and reference share ops/noise.h, so comparing them with each other (test_conformance) says nothing about the noise. Here
 * every element is updated to the middle between two bf16 numbers; which one it becomes is one bit of its noise.
 */
#include "core/bf16.h"
#include "core/mem.h"
#include "device/cpu/kernels/kernel.h"
#include "optim/element.h"
#include "test.h"

enum { COUNT = 1 << 16, GROUPS = 8, LANES = 16, BLOCK = GROUPS * LANES, MAX_TENSORS = 3 };

static int32_t step_words[SL_STEP_WORDS];
static sl_bf16 gradient[COUNT], tensors[MAX_TENSORS][COUNT];

/* Which update, and through what: NULL is the reference. */
typedef struct contender {
    sl_op_id op;
    const sl_cpu_kernel *kernel;
} contender;

static const char *name_of(contender c)
{
    return c.kernel ? c.kernel->name : sl_op(c.op)->name;
}

static int tensors_of(contender c)
{
    return c.op == SL_OP_ADAMW ? 3 : 2;
}

static sl_launch launch_of(sl_op_id op, int64_t count, uint64_t stream)
{
    sl_launch launch = {.op = op, .in[0] = {gradient, sl_type_1d(SL_BF16, count)}};
    launch.in[1] = (sl_operand){step_words, sl_type_1d(SL_I32, SL_STEP_WORDS)};
    for (int t = 0; t < (op == SL_OP_ADAMW ? 3 : 2); t++)
        launch.out[t] = (sl_operand){tensors[t], sl_type_1d(SL_BF16, count)};
    if (op == SL_OP_ADAMW) {
        sl_adamw_set(&launch.attrs)->stream = (int64_t) stream;
        sl_adamw_set(&launch.attrs)->stochastic = 1;
    } else {
        sl_sgd_set(&launch.attrs)->stream = (int64_t) stream;
        sl_sgd_set(&launch.attrs)->stochastic = 1;
    }
    return launch;
}

static void set_step(float learning_rate, uint32_t step, uint64_t seed)
{
    sl_step_params params = {.learning_rate = learning_rate,
                             .corrections = {{1, 1}},
                             .step = step,
                             .seed_lo = (uint32_t) seed,
                             .seed_hi = (uint32_t) (seed >> 32)};
    memcpy(step_words, &params, sizeof params);
}

static void run(contender c, sl_launch *launch)
{
    if (c.kernel)
        c.kernel->run(launch, NULL);
    else
        sl_op(c.op)->reference(launch);
}

/* Calls `test` for both updates through the reference and through the kernel of each instruction set. */
static void each_contender(void (*test)(contender))
{
    static const sl_op_id ops[] = {SL_OP_ADAMW, SL_OP_SGD};
    sl_isa best;
    CHECK_OK(sl_isa_detect(&best));
    for (int k = 0; k < 2; k++) {
        contender c = {ops[k], NULL};
        test(c);
        for (int isa = SL_ISA_AVX2; isa <= (int) best; isa++) {
            sl_launch launch = launch_of(c.op, COUNT, 0);
            const sl_cpu_kernel *kernel = sl_cpu_kernel_find(&launch, (sl_isa) isa);
            REQUIRE(kernel);
            if (kernel == c.kernel)
                continue; /* the one of a lower set */
            c.kernel = kernel;
            test(c);
        }
    }
}

/* ---- independence ---- */

/* 1 where the element went up. */
typedef struct draw {
    unsigned char up[MAX_TENSORS][COUNT];
} draw;

/* All values go to about 1 + 2^-8, between 1 and the next bf16, 1 + 2^-7. */
static void take(contender c, uint64_t stream, uint32_t step, uint64_t seed, draw *out)
{
    sl_launch launch = launch_of(c.op, COUNT, stream);
    set_step(-0x1p-8f, step, seed);
    for (int64_t i = 0; i < COUNT; i++) {
        gradient[i] = sl_f32_to_bf16(c.op == SL_OP_ADAMW ? 1 + 0x1p-7f : 0x1p-8f);
        for (int t = 0; t < tensors_of(c); t++)
            tensors[t][i] = sl_f32_to_bf16(1);
    }
    if (c.op == SL_OP_ADAMW)
        sl_adamw_set(&launch.attrs)->beta1 = 0.5f, sl_adamw_set(&launch.attrs)->beta2 = 0.75f;
    else
        sl_sgd_set(&launch.attrs)->momentum = 1;
    run(c, &launch);
    for (int t = 0; t < tensors_of(c); t++) {
        int64_t ups = 0;
        for (int64_t i = 0; i < COUNT; i++) {
            out->up[t][i] = tensors[t][i] == 0x3f81;
            ups += out->up[t][i];
            if (tensors[t][i] != 0x3f80 && tensors[t][i] != 0x3f81)
                CHECK_MSG(false, "%s: tensor %d is 0x%04x, no neighbour of 1 + 2^-8", name_of(c), t, tensors[t][i]);
        }
        CHECK_NEAR((double) ups / COUNT, 0.5, 0.02);
    }
}

/* Correlation of two sequences of `n` bits, each `stride` elements, `run` bits of each stride: 5.5 standard errors are allowed. */
typedef struct bits {
    const unsigned char *from;
    int64_t stride, run;
} bits;

static double correlation(bits a, bits b, int64_t strides)
{
    int64_t n = 0, na = 0, nb = 0, both = 0;
    for (int64_t s = 0; s < strides; s++)
        for (int64_t i = 0; i < a.run; i++, n++) {
            int x = a.from[s * a.stride + i], y = b.from[s * b.stride + i];
            na += x, nb += y, both += x & y;
        }
    double count = (double) n, pa = (double) na / count, pb = (double) nb / count;
    return ((double) both / count - pa * pb) / sqrt(pa * (1 - pa) * pb * (1 - pb)) * sqrt(count);
}

static void check_independent(contender c, bits a, bits b, int64_t strides, const char *what, int64_t i, int64_t j)
{
    double errors = correlation(a, b, strides);
    CHECK_MSG(fabs(errors) < 5.5, "%s: %s %lld and %lld: noise is correlated by %.1f standard errors", name_of(c), what,
              (long long) i, (long long) j, errors);
}

static draw first, other;

/* Any two of the groups of 16 in a block, of any two tensors. */
static void groups(contender c)
{
    take(c, 5, 3, 0x123456789, &first);
    int count = tensors_of(c) * GROUPS;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            bits a = {&first.up[i / GROUPS][i % GROUPS * LANES], BLOCK, LANES};
            bits b = {&first.up[j / GROUPS][j % GROUPS * LANES], BLOCK, LANES};
            check_independent(c, a, b, COUNT / BLOCK, "groups of 16", i, j);
        }
}

/* Elements a fixed distance apart: neighbours, blocks, halves of the tensor. */
static void distances(contender c)
{
    static const int64_t apart[] = {1, 2, 4, 8, 15, 16, 17, 128, 256, 384, 1024, 2048, 4096, 8192, 16384, 32768, 65520};
    take(c, 5, 3, 0x123456789, &first);
    for (int t = 0; t < tensors_of(c); t++)
        for (int64_t k = 0; k < SL_COUNT(apart); k++) {
            bits a = {first.up[t], 0, COUNT - apart[k]}, b = {first.up[t] + apart[k], 0, COUNT - apart[k]};
            check_independent(c, a, b, 1, "tensor, distance", t, apart[k]);
        }
}

/* The same elements in another step, stream or seed, each word of them. */
static void launches(contender c)
{
    static const struct {
        uint64_t stream;
        uint32_t step;
        uint64_t seed;
    } others[] = {{5, 4, 0x100000009}, {6, 3, 0x100000009}, {3, 5, 0x100000009}, {5, 3, 0x10000000a},
                  {5, 3, 0x200000009}, {5, 3, 0x900000001}, {6, 2, 0x100000009}, {5, 1000003, 0x100000009}};
    take(c, 5, 3, 0x100000009, &first);
    for (int64_t k = 0; k < SL_COUNT(others); k++) {
        take(c, others[k].stream, others[k].step, others[k].seed, &other);
        for (int t = 0; t < tensors_of(c); t++)
            for (int u = 0; u < tensors_of(c); u++)
                check_independent(c, (bits){first.up[t], 0, COUNT}, (bits){other.up[u], 0, COUNT}, 1, "launch, tensor",
                                  k, t);
    }
    take(c, 5, 3, 0x100000009, &other); /* and it is a function of them: the same again */
    CHECK(memcmp(first.up, other.up, (size_t) tensors_of(c) * COUNT) == 0);
}

TEST(independent_noise)
{
    each_contender(groups);
    each_contender(distances);
    each_contender(launches);
}

/* ---- values without an upper neighbour ---- */

enum { TAIL_COUNT = 4096 + 77 };

/* An update by nothing: infinities, NaNs, and every exact number stay, in each tensor and in tails. */
static void specials_stay(contender c)
{
    static const sl_bf16 special[] = {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7fff, 0x7f7f, 0xff7f, 0x0080, 0x0001, 0x3f80};
    sl_launch launch = launch_of(c.op, TAIL_COUNT, 9);
    int n = tensors_of(c);
    set_step(1, 2, 77);
    memset(gradient, 0, sizeof gradient);
    memset(tensors, 0, sizeof tensors);
    for (int64_t i = 0; i < TAIL_COUNT; i++)
        tensors[i % n][i] = special[i / n % SL_COUNT(special)];
    if (c.op == SL_OP_ADAMW)
        sl_adamw_set(&launch.attrs)->beta1 = sl_adamw_set(&launch.attrs)->beta2 = 1,
        sl_adamw_set(&launch.attrs)->eps = 1;
    else
        sl_sgd_set(&launch.attrs)->momentum = 1;
    run(c, &launch);
    for (int64_t i = 0; i < TAIL_COUNT; i++) {
        sl_bf16 want = special[i / n % SL_COUNT(special)], got = tensors[i % n][i];
        /* SGD's decay joins the gradient, and no decay of an infinite parameter is 0 * infinity. */
        bool nan = isnan(sl_bf16_to_f32(want)) || (c.op == SL_OP_SGD && i % n == 0 && isinf(sl_bf16_to_f32(want)));
        CHECK_MSG(nan ? isnan(sl_bf16_to_f32(got)) : got == want, "%s: 0x%04x in tensor %lld became 0x%04x", name_of(c),
                  want, (long long) (i % n), got);
    }
}

/* Above the largest bf16 the next one is infinity, of the same sign; what has overflowed in f32 is infinite without chance. */
static void largest(contender c)
{
    static const struct {
        sl_bf16 from;
        float learning_rate;
        sl_bf16 low, high;
    } cases[] = {{0x7f7f, -0x1p119f, 0x7f7f, 0x7f80},
                 {0xff7f, 0x1p119f, 0xff7f, 0xff80},
                 {0x7f7f, -0x1p127f, 0x7f80, 0x7f80},
                 {0xff7f, 0x1p127f, 0xff80, 0xff80}};
    for (int64_t k = 0; k < SL_COUNT(cases); k++) {
        sl_launch launch = launch_of(c.op, TAIL_COUNT, 9);
        int64_t ups = 0;
        set_step(cases[k].learning_rate, 2, 77);
        for (int64_t i = 0; i < TAIL_COUNT; i++) {
            gradient[i] = tensors[1][i] = tensors[2][i] = sl_f32_to_bf16(c.op == SL_OP_ADAMW);
            tensors[0][i] = cases[k].from;
        }
        for (int64_t i = 0; c.op == SL_OP_SGD && i < TAIL_COUNT; i++)
            tensors[1][i] = sl_f32_to_bf16(1); /* with momentum 1 and no gradient the update is 1 */
        if (c.op == SL_OP_ADAMW)
            sl_adamw_set(&launch.attrs)->beta1 = sl_adamw_set(&launch.attrs)->beta2 = 1;
        else
            sl_sgd_set(&launch.attrs)->momentum = 1;
        run(c, &launch);
        for (int64_t i = 0; i < TAIL_COUNT; i++) {
            sl_bf16 got = tensors[0][i];
            ups += got == cases[k].high;
            CHECK_MSG(got == cases[k].low || got == cases[k].high, "%s: case %lld: 0x%04x became 0x%04x", name_of(c),
                      (long long) k, cases[k].from, got);
        }
        if (cases[k].low != cases[k].high)
            CHECK_NEAR((double) ups / TAIL_COUNT, 0.5, 0.05);
    }
}

TEST(values_at_the_ends)
{
    each_contender(specials_stay);
    each_contender(largest);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(independent_noise);
    RUN(values_at_the_ends);
    return test_end();
}
