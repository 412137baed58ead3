/* Accuracy of the vector functions inside the CPU kernels, over their whole range, for every instruction set this
 * machine has. They are tested through the kernels that use them, so the test needs no instruction set of its own:
 * SwiGLU with up = 1 shows the sigmoid (and exp), GELU the normal distribution, RoPE of (1, 0) cosine and sine, cast
 * the rounding to bf16. */
#include <math.h>

#include "core/bf16.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/gelu.h"
#include "ops/rope.h"
#include "test.h"

enum { COUNT = 1 << 16 };

static sl_isa best;
static float x[2 * COUNT], y[2 * COUNT], z[2 * COUNT];
static _Alignas(256) char workspace[1 << 16];

static void run(const sl_cpu_kernel *kernel, sl_launch *launch)
{
    launch->op = kernel->op;
    launch->workspace = workspace;
    launch->workspace_bytes = kernel->workspace ? kernel->workspace(launch, 1) : 0;
    REQUIRE(launch->workspace_bytes <= sizeof workspace);
    kernel->run(launch, NULL);
}

/* The k-th kernel of an op that this machine can run; NULL: no more. */
static const sl_cpu_kernel *next_kernel(sl_op_id op, int64_t *k)
{
    int64_t count;
    const sl_cpu_kernel *const *kernels = sl_cpu_kernels(&count);
    for (; *k < count; (*k)++)
        if (kernels[*k]->op == op && kernels[*k]->isa <= best)
            return kernels[(*k)++];
    return NULL;
}

/* COUNT values, evenly over [low, high]. */
static void spread(float *to, int64_t stride, double low, double high)
{
    for (int64_t i = 0; i < COUNT; i++)
        to[i * stride] = (float) (low + (high - low) * (double) i / (COUNT - 1));
}

TEST(sigmoid)
{
    const sl_cpu_kernel *kernel;
    int64_t tested = 0;
    for (int64_t k = 0; (kernel = next_kernel(SL_OP_SWIGLU, &k)) != NULL; tested++) {
        /* Rows of gate and up, one element each: every value takes part, in the tail as well. */
        static const double ranges[][2] = {{-20, 20}, {-80, 80}, {-1e-3, 1e-3}};
        for (int r = 0; r < 3; r++) {
            spread(x, 1, ranges[r][0], ranges[r][1]);
            for (int64_t i = 0; i < COUNT; i++)
                x[COUNT + i] = 1;
            sl_launch launch = {.in[0] = {x, sl_type_2d(SL_F32, 1, 2 * COUNT)},
                                .out[0] = {y, sl_type_2d(SL_F32, 1, COUNT)}};
            run(kernel, &launch);
            double worst = 0;
            for (int64_t i = 0; i < COUNT; i++) {
                double want = x[i] / (1 + exp(-(double) x[i]));
                worst = fmax(worst, fabs(y[i] - want) / fmax(fabs(want), 1e-37));
            }
            CHECK_MSG(worst < 4e-7, "%s on [%g, %g]: relative error %.2e", kernel->name, ranges[r][0], ranges[r][1],
                      worst);
        }
    }
    CHECK(tested >= (best >= SL_ISA_AVX512 ? 2 : best >= SL_ISA_AVX2));
}

static double gelu(double v, bool tanh_form)
{
    return tanh_form ? v / (1 + exp(-2 * 0.7978845608028654 * (v + 0.044715 * v * v * v)))
                     : 0.5 * v * erfc(-v * sqrt(0.5));
}

/* Derivative, from the formulas' own derivative rather than the kernel's way of writing it. */
static double gelu_slope(double v, bool tanh_form)
{
    double h = 1e-4;
    return (8 * (gelu(v + h, tanh_form) - gelu(v - h, tanh_form)) -
            (gelu(v + 2 * h, tanh_form) - gelu(v - 2 * h, tanh_form))) /
           (12 * h);
}

TEST(normal_distribution)
{
    const sl_cpu_kernel *kernel;
    for (int tanh_form = 0; tanh_form < 2; tanh_form++) {
        spread(x, 1, -12, 12);
        for (int64_t k = 0; (kernel = next_kernel(SL_OP_GELU, &k)) != NULL;) {
            sl_launch launch = {.in[0] = {x, sl_type_1d(SL_F32, COUNT)}, .out[0] = {y, sl_type_1d(SL_F32, COUNT)}};
            sl_gelu_set(&launch.attrs)->tanh = tanh_form;
            run(kernel, &launch);
            double worst = 0;
            for (int64_t i = 0; i < COUNT; i++)
                worst = fmax(worst, fabs(y[i] - gelu(x[i], tanh_form)) / fmax(1, fabs(x[i])));
            CHECK_MSG(worst < 2e-7, "%s tanh %d: error %.2e", kernel->name, tanh_form, worst);
        }
        for (int64_t i = 0; i < COUNT; i++)
            z[i] = 1;
        for (int64_t k = 0; (kernel = next_kernel(SL_OP_GELU_BWD, &k)) != NULL;) {
            sl_launch launch = {.in = {{z, sl_type_1d(SL_F32, COUNT)}, {x, sl_type_1d(SL_F32, COUNT)}},
                                .out[0] = {y, sl_type_1d(SL_F32, COUNT)}};
            sl_gelu_set(&launch.attrs)->tanh = tanh_form;
            run(kernel, &launch);
            double worst = 0;
            for (int64_t i = 0; i < COUNT; i++)
                worst = fmax(worst, fabs(y[i] - gelu_slope(x[i], tanh_form)));
            CHECK_MSG(worst < 5e-7, "%s tanh %d: error %.2e", kernel->name, tanh_form, worst);
        }
    }
}

TEST(sine_and_cosine)
{
    static int32_t positions[COUNT];
    const sl_cpu_kernel *kernel;
    for (int64_t k = 0; (kernel = next_kernel(SL_OP_ROPE, &k)) != NULL;) {
        static const double last[] = {100, 1 << 20};
        for (int r = 0; r < 2; r++) {
            /* One head of 2 turns by the position itself, in radians; k and v ride along. */
            static float qkv[6 * 4096], q[2 * 4096], kv[4 * 4096];
            for (int64_t i = 0; i < 4096; i++) {
                positions[i] = (int32_t) (last[r] * (double) i / 4095);
                for (int64_t j = 0; j < 6; j++)
                    qkv[6 * i + j] = j % 2 == 0;
            }
            sl_launch launch = {.in = {{qkv, sl_type_2d(SL_F32, 4096, 6)}, {positions, sl_type_1d(SL_I32, 4096)}},
                                .out = {{q, sl_type_2d(SL_F32, 4096, 2)}, {kv, sl_type_2d(SL_F32, 4096, 4)}}};
            sl_rope_set(&launch.attrs)->heads = sl_rope_set(&launch.attrs)->kv_heads = 1;
            sl_rope_set(&launch.attrs)->head_dim = 2;
            sl_rope_set(&launch.attrs)->theta = 10000;
            sl_rope_set(&launch.attrs)->style = SL_ROPE_HALF;
            run(kernel, &launch);
            double worst = 0;
            for (int64_t i = 0; i < 4096; i++) {
                worst = fmax(worst, fabs(q[2 * i] - cos(positions[i])));
                worst = fmax(worst, fabs(kv[4 * i + 1] - sin(positions[i])));
            }
            CHECK_MSG(worst < 1.3e-7, "%s to position %g: error %.2e", kernel->name, last[r], worst);
        }
    }
}

TEST(rounding_to_bf16)
{
    const sl_cpu_kernel *kernel;
    static sl_bf16 narrow[COUNT];
    for (int64_t k = 0; (kernel = next_kernel(SL_OP_CAST, &k)) != NULL;) {
        /* Every upper half with lower halves around the tie: infinities, NaNs, denormals and carries among them. */
        static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (int r = 0; r < SL_COUNT(low); r++) {
            for (uint32_t i = 0; i < COUNT; i++) {
                uint32_t bits = i << 16 | low[r];
                memcpy(&x[i], &bits, 4);
            }
            sl_launch launch = {.in[0] = {x, sl_type_1d(SL_F32, COUNT)},
                                .out[0] = {narrow, sl_type_1d(SL_BF16, COUNT)}};
            run(kernel, &launch);
            int64_t wrong = 0;
            for (int64_t i = 0; i < COUNT; i++)
                wrong += narrow[i] != sl_f32_to_bf16(x[i]);
            CHECK_MSG(wrong == 0, "%s, low half %#x: %lld values rounded wrongly", kernel->name, low[r],
                      (long long) wrong);
        }
        for (int64_t i = 0; i < COUNT; i++)
            narrow[i] = (sl_bf16) i;
        sl_launch launch = {.in[0] = {narrow, sl_type_1d(SL_BF16, COUNT)}, .out[0] = {y, sl_type_1d(SL_F32, COUNT)}};
        run(kernel, &launch);
        for (int64_t i = 0; i < COUNT; i++)
            z[i] = sl_bf16_to_f32((sl_bf16) i);
        CHECK(memcmp(y, z, COUNT * sizeof *y) == 0);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    CHECK_OK(sl_isa_detect(&best));
    RUN(sigmoid);
    RUN(normal_distribution);
    RUN(sine_and_cosine);
    RUN(rounding_to_bf16);
    return test_end();
}
