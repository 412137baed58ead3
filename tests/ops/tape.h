/* A tiny graph for gradient rules: it runs every emitted launch at once with the op's reference and adds up the gradients of
 * the forward node's inputs. In counting mode it runs nothing and adds up the work. */
#ifndef SL_TESTS_OPS_TAPE_H
#define SL_TESTS_OPS_TAPE_H

#include "ops/launch.h"

/* Values: inputs 0.., outputs 10.., gradients of outputs 20.., the step parameters 30. */
enum { TAPE_OUT = 10, TAPE_D_OUT = 20, TAPE_STEP = 30, TAPE_VALUES = 31 };

typedef struct tape {
    sl_operand value[TAPE_VALUES];
    sl_operand gradient[SL_MAX_IN]; /* f32 sums, by input of the forward node */
    float loss;                     /* what a target SL_TARGET_LOSS gave */
    bool has_loss, counting;
    const float *constants; /* of the forward */
    uint32_t frozen;        /* inputs that want no gradient */
    sl_work work;
    int launches;
} tape;

static inline sl_status tape_emit(sl_gradient *gradient, sl_op_id op, const sl_attrs *attrs, const sl_value *in,
                                  int n_in, const int *targets, int n_out)
{
    tape *tp = gradient->graph;
    const sl_op_def *def = sl_op(op);
    test_launch t = {.launch = {.op = op, .attrs = *attrs, .constants = tp->constants}};
    sl_type in_type[SL_MAX_IN] = {{0}}, out_type[SL_MAX_OUT] = {{0}};
    CHECK_MSG(n_in <= def->n_in && n_out <= def->n_out, "%s: emitted with %d inputs and %d outputs", def->name, n_in,
              n_out);
    for (int i = 0; i < n_in; i++)
        if (in[i] != SL_NO_VALUE)
            in_type[i] = tp->value[in[i]].type;
    SL_TRY(def->infer(attrs, in_type, out_type));
    for (int i = 0; i < n_in; i++)
        t.launch.in[i].type = in_type[i];
    for (int k = 0; k < n_out; k++)
        if (targets[k] != SL_TARGET_NONE)
            t.launch.out[k].type = out_type[k];
    sl_work work;
    def->work(&t.launch, &work);
    tp->work.flops += work.flops;
    tp->work.hardware_flops += work.hardware_flops;
    tp->launches++;
    if (tp->counting)
        return SL_OK;
    test_allocate(&t, test_reference_workspace(&t.launch));
    for (int i = 0; i < n_in; i++)
        if (in_type[i].rank)
            memcpy(t.launch.in[i].data, tp->value[in[i]].data, sl_type_bytes(&in_type[i]));
    def->reference(&t.launch);
    CHECK_MSG(test_guards_intact(&t), "%s: reference wrote outside its operands", def->name);
    for (int k = 0; k < n_out; k++) {
        const sl_operand *out = &t.launch.out[k];
        if (targets[k] == SL_TARGET_LOSS) {
            tp->loss = sl_get(out, 0);
            tp->has_loss = true;
        }
        for (int64_t i = 0; targets[k] >= 0 && i < sl_type_count(&out->type); i++)
            sl_put(&tp->gradient[targets[k]], i, sl_get(&tp->gradient[targets[k]], i) + sl_get(out, i));
    }
    test_release(&t);
    return SL_OK;
}

static inline sl_status tape_pass(sl_gradient *gradient, int i, sl_value d)
{
    tape *tp = gradient->graph;
    for (int64_t e = 0; !tp->counting && e < sl_type_count(&tp->value[d].type); e++)
        sl_put(&tp->gradient[i], e, sl_get(&tp->gradient[i], e) + sl_get(&tp->value[d], e));
    return SL_OK;
}

/* Calls the gradient rule of a forward launch. d_out[k] without data but with a type counts too. */
static inline void tape_run(tape *tp, const sl_launch *forward, const sl_operand *d_out, const sl_operand *step)
{
    const sl_op_def *def = sl_op(forward->op);
    sl_type in_type[SL_MAX_IN], out_type[SL_MAX_OUT];
    sl_value in[SL_MAX_IN], out[SL_MAX_OUT], d[SL_MAX_OUT];
    bool need[SL_MAX_IN];
    for (int i = 0; i < SL_MAX_IN; i++) {
        in_type[i] = forward->in[i].type;
        in[i] = in_type[i].rank ? i : SL_NO_VALUE;
        need[i] = in_type[i].rank && in_type[i].dtype != SL_I32 && !((tp->frozen | def->fixed_in) >> i & 1u);
        tp->value[i] = forward->in[i];
    }
    for (int k = 0; k < SL_MAX_OUT; k++) {
        out_type[k] = forward->out[k].type;
        out[k] = out_type[k].rank ? TAPE_OUT + k : SL_NO_VALUE;
        d[k] = d_out && d_out[k].type.rank ? TAPE_D_OUT + k : SL_NO_VALUE;
        tp->value[TAPE_OUT + k] = forward->out[k];
        if (d_out)
            tp->value[TAPE_D_OUT + k] = d_out[k];
    }
    tp->value[TAPE_STEP] = *step;
    tp->constants = forward->constants;
    sl_gradient gradient = {
        .attrs = &forward->attrs,
        .in_type = in_type,
        .out_type = out_type,
        .in = in,
        .out = out,
        .d_out = d,
        .need = need,
        .graph = tp,
        .emit = tape_emit,
        .pass = tape_pass,
        .step = TAPE_STEP,
    };
    CHECK_OK(def->gradient(&gradient));
}

#endif
