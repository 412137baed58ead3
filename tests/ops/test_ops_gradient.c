/* Gradient rules and backward references against finite differences of the forward reference: for loss = sum(out * R), R random,
 * the gradient of every f32 case of every differentiable op must be the slope of the loss along sampled elements. */
#include "core/rng.h"
#include "ops/tape.h"

#define SAMPLES 12
#define SEED 11

typedef struct scene {
    test_launch forward;
    unsigned char *start;          /* the operands before the launch: it may accumulate */
    sl_operand weight[SL_MAX_OUT]; /* R, where an output carries gradient */
} scene;

/* Statistics (rstd, lse) are by-products; q and kv of rope are both results. */
static bool carries_gradient(sl_op_id op, int k)
{
    return k == 0 || op == SL_OP_ROPE || op == SL_OP_ROPE_TABLE;
}

/* An accumulating launch must start from the same place every time. */
static void reset_outputs(scene *s)
{
    sl_launch *launch = &s->forward.launch;
    for (int k = 0; k < SL_MAX_OUT; k++)
        if (launch->out[k].data)
            memcpy(launch->out[k].data, s->start + ((unsigned char *) launch->out[k].data - s->forward.memory),
                   sl_type_bytes(&launch->out[k].type));
}

static double loss_of(scene *s)
{
    sl_launch *launch = &s->forward.launch;
    const sl_op_def *def = sl_op(launch->op);
    double loss = 0;
    reset_outputs(s);
    def->reference(launch);
    for (int k = 0; k < def->n_out; k++)
        for (int64_t i = 0; i < sl_type_count(&s->weight[k].type); i++)
            loss += (double) sl_get(&launch->out[k], i) * (double) sl_get(&s->weight[k], i);
    return loss;
}

/* Fourth-order central difference: the outputs are rounded to f32, so the step must be wide. */
static double slope(scene *s, const sl_operand *x, int64_t i)
{
    const double h = 0.02;
    float value = sl_get(x, i);
    double at[5] = {0};
    for (int k = -2; k <= 2; k++) {
        sl_put(x, i, (float) (value + k * h));
        at[k + 2] = k ? loss_of(s) : 0;
    }
    sl_put(x, i, value);
    return (8 * (at[3] - at[1]) - (at[4] - at[0])) / (12 * h);
}

static void make_operand(sl_operand *x, sl_type type)
{
    x->type = type;
    CHECK_OK(sl_alloc(&x->data, sl_type_bytes(&type), 1));
}

static void make_weights(scene *s, const sl_operand *step)
{
    sl_launch *launch = &s->forward.launch;
    const sl_op_def *def = sl_op(launch->op);
    for (int k = 0; k < def->n_out; k++) {
        if (!carries_gradient(launch->op, k))
            continue;
        make_operand(&s->weight[k], launch->out[k].type);
        for (int64_t i = 0; i < sl_type_count(&s->weight[k].type); i++) {
            float uniform = sl_rng_uniform(sl_philox(SEED, (uint64_t) i, (uint64_t) k).v[0]);
            sl_put(&s->weight[k], i, 2 * uniform - 1);
        }
        if (def->yields_loss) /* its gradients are of loss * loss_scale by definition */
            sl_put(&s->weight[k], 0, ((const sl_step_params *) step->data)->loss_scale);
    }
}

static void compare_slopes(scene *s, const tape *tp, const char *name)
{
    sl_launch *launch = &s->forward.launch;
    const sl_op_def *def = sl_op(launch->op);
    for (int i = 0; i < def->n_in; i++) {
        const sl_operand *gradient = &tp->gradient[i];
        int64_t count = sl_type_count(&gradient->type);
        double largest = 1e-6;
        for (int64_t e = 0; e < count; e++)
            largest = fmax(largest, fabs((double) sl_get(gradient, e)));
        for (int64_t sample = 0; sample < SL_MIN(count, SAMPLES); sample++) {
            int64_t e = (int64_t) (sl_philox(SEED + 1, (uint64_t) sample, (uint64_t) i).v[0] % (uint64_t) count);
            double want = slope(s, &launch->in[i], e), got = (double) sl_get(gradient, e);
            CHECK_MSG(fabs(got - want) <= 2e-3 * largest, "%s %s: d in[%d][%lld] is %.7g, finite differences give %.7g",
                      def->name, name, i, (long long) e, got, want);
        }
    }
}

static void check_case(sl_op_id op, const sl_op_case *op_case)
{
    const sl_op_def *def = sl_op(op);
    scene s = {0};
    tape tp = {0};
    sl_step_params params = {.loss_scale = 0.125f, .step = 3};
    sl_operand step = {&params, sl_type_1d(SL_I32, SL_STEP_WORDS)};
    test_prepare(&s.forward, op, op_case, SEED);
    CHECK_OK(sl_alloc(&s.start, s.forward.bytes, 1));
    memcpy(s.start, s.forward.memory, s.forward.bytes);
    make_weights(&s, &step);
    for (int i = 0; i < def->n_in; i++)
        if (op_case->in[i].rank && op_case->in[i].dtype != SL_I32 && !(def->fixed_in >> i & 1u) &&
            (!i || (i != def->loss_targets && i != def->loss_weights)))
            make_operand(&tp.gradient[i], op_case->in[i]);

    def->reference(&s.forward.launch);
    CHECK_MSG(test_guards_intact(&s.forward), "%s %s: reference wrote outside its operands", def->name, op_case->name);
    tape_run(&tp, &s.forward.launch, s.weight, &step);
    if (def->yields_loss)
        CHECK(tp.has_loss && fabsf(tp.loss - sl_get(&s.forward.launch.out[0], 0)) <= 1e-5f * fabsf(tp.loss));
    compare_slopes(&s, &tp, op_case->name);

    for (int i = 0; i < SL_MAX_IN; i++)
        sl_free(tp.gradient[i].data);
    for (int k = 0; k < SL_MAX_OUT; k++)
        sl_free(s.weight[k].data);
    sl_free(s.start);
    test_release(&s.forward);
}

TEST(finite_differences)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *def = sl_op((sl_op_id) op);
        int cases = 0;
        for (int64_t c = 0; def->gradient && op != SL_OP_CAST && c < def->n_cases; c++) {
            sl_launch launch;
            sl_work work;
            CHECK_OK(sl_op_case_launch((sl_op_id) op, &def->cases[c], &launch));
            def->work(&launch, &work);
            if (def->cases[c].in[0].dtype != SL_F32 || work.flops > 2e6 ||
                sl_type_count(&def->cases[c].in[0]) > 1 << 16)
                continue; /* the sizes that cross kernels' blocks are for kernels */
            check_case((sl_op_id) op, &def->cases[c]);
            cases++;
        }
        CHECK_MSG(!def->gradient || op == SL_OP_CAST || cases > 0, "%s: no case was checked", def->name);
    }
}

/* A cast cannot be probed by differences smaller than bf16's steps: its gradient is a cast back, exactly. */
TEST(cast_gradient)
{
    test_launch forward = {0};
    tape tp = {0};
    sl_operand step = {NULL, sl_type_1d(SL_I32, SL_STEP_WORDS)}, d_out[SL_MAX_OUT] = {{0}};
    test_prepare(&forward, SL_OP_CAST, &sl_op(SL_OP_CAST)->cases[1], SEED);
    make_operand(&d_out[0], forward.launch.out[0].type);
    make_operand(&tp.gradient[0], forward.launch.in[0].type);
    for (int64_t i = 0; i < sl_type_count(&d_out[0].type); i++)
        sl_put(&d_out[0], i, (float) i);
    tape_run(&tp, &forward.launch, d_out, &step);
    CHECK_I64(tp.launches, 1);
    for (int64_t i = 0; i < sl_type_count(&d_out[0].type); i++)
        CHECK(sl_get(&tp.gradient[0], i) == sl_get(&d_out[0], i));
    sl_free(d_out[0].data);
    sl_free(tp.gradient[0].data);
    test_release(&forward);
}

/* A frozen input gets no launch of its own, and without a gradient of the output there is nothing to do. */
TEST(unneeded)
{
    sl_launch forward = {.op = SL_OP_MATMUL};
    forward.in[0].type = sl_type_2d(SL_F32, 4, 8);
    forward.in[1].type = sl_type_2d(SL_F32, 8, 3);
    forward.out[0].type = sl_type_2d(SL_F32, 4, 3);
    sl_operand step = {NULL, sl_type_1d(SL_I32, SL_STEP_WORDS)}, d_out[SL_MAX_OUT] = {{NULL, forward.out[0].type}};
    tape both = {.counting = true}, one = {.counting = true, .frozen = 2}, none = {.counting = true};
    tape_run(&both, &forward, d_out, &step);
    CHECK_I64(both.launches, 2);
    tape_run(&one, &forward, d_out, &step);
    CHECK_I64(one.launches, 1);
    tape_run(&none, &forward, NULL, &step);
    CHECK_I64(none.launches, 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(finite_differences);
    RUN(cast_gradient);
    RUN(unneeded);
    return test_end();
}
