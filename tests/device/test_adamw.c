/* AdamW with everything in bf16: the fast form against the reference, bit for bit, where blocks decay wholly, not at all
 * or in part, with tails, and with infinity and NaN among the numbers. */
#include "test.h"

#include "core/bf16.h"
#include "core/mem.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/fill.h"
#include "optim/element.h"

static void make(sl_launch *launch, int64_t count, int64_t decayed)
{
    memset(launch, 0, sizeof *launch);
    launch->op = SL_OP_ADAMW;
    sl_adamw_set(&launch->attrs)->beta1 = 0.9f;
    sl_adamw_set(&launch->attrs)->beta2 = 0.999f;
    sl_adamw_set(&launch->attrs)->eps = 1e-8f;
    sl_adamw_set(&launch->attrs)->weight_decay = 0.1f;
    sl_adamw_set(&launch->attrs)->decayed = decayed;
    sl_adamw_set(&launch->attrs)->stream = 77;
    sl_adamw_set(&launch->attrs)->stochastic = 1;
    launch->in[0].type = sl_type_1d(SL_BF16, count);
    launch->in[1].type = sl_type_1d(SL_I32, SL_STEP_WORDS);
    CHECK_OK(sl_alloc(&launch->in[0].data, count, sizeof(sl_bf16)));
    CHECK_OK(sl_alloc(&launch->in[1].data, SL_STEP_WORDS, sizeof(int32_t)));
    for (int k = 0; k < 3; k++) {
        launch->out[k].type = sl_type_1d(SL_BF16, count);
        CHECK_OK(sl_alloc(&launch->out[k].data, count, sizeof(sl_bf16)));
    }
    CHECK_OK(sl_op_fill(launch, 5, NULL));
    static const sl_bf16 special[] = {0x7f80, 0xff80, 0x7fc1, 0x7f7f, 0xff7f, 0x0001, 0x8000};
    sl_bf16 *gradient = launch->in[0].data, *moment = launch->out[1].data;
    for (int64_t i = 0; i < SL_COUNT(special) && 12 * i + 11 < count; i++) {
        gradient[12 * i + 3] = special[i];
        moment[12 * i + 8] = special[i];
    }
}

static void destroy(sl_launch *launch)
{
    sl_free(launch->in[0].data);
    sl_free(launch->in[1].data);
    for (int k = 0; k < 3; k++)
        sl_free(launch->out[k].data);
}

static void check(sl_isa isa, int64_t count, int64_t decayed)
{
    sl_launch fast, reference;
    make(&fast, count, decayed);
    make(&reference, count, decayed);
    const sl_cpu_kernel *kernel = sl_cpu_kernel_find(&fast, isa);
    REQUIRE(kernel);
    kernel->run(&fast, NULL);
    sl_op(SL_OP_ADAMW)->reference(&reference);
    for (int k = 0; k < 3; k++)
        CHECK_MSG(memcmp(fast.out[k].data, reference.out[k].data, (size_t) count * sizeof(sl_bf16)) == 0,
                  "%s, %lld elements, %lld decayed: output %d differs", kernel->name, (long long) count,
                  (long long) decayed, k);
    destroy(&fast);
    destroy(&reference);
}

TEST(bits_of_the_reference)
{
    static const int64_t counts[] = {1, 127, 128, 129, 256, 16384, 16512, 16383, 50000};
    sl_isa isa;
    CHECK_OK(sl_isa_detect(&isa));
    if (isa == SL_ISA_SCALAR)
        SKIP("no vector kernels here");
    for (int64_t i = 0; i < SL_COUNT(counts); i++) {
        const int64_t decays[] = {counts[i], 0, counts[i] / 2, 16384, 128};
        for (int64_t j = 0; j < SL_COUNT(decays); j++)
            check(isa, counts[i], SL_MIN(decays[j], counts[i]));
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(bits_of_the_reference);
    return test_end();
}
