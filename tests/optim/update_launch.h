/* A launch of an optimizer's op with buffers of its own, described as a program describes it: all in f32, or gradient and parameter in
 * bf16 with f32 states and master. */
#ifndef SL_TESTS_UPDATE_LAUNCH_H
#define SL_TESTS_UPDATE_LAUNCH_H

#include "core/bf16.h"
#include "core/mem.h"
#include "core/rng.h"
#include "ops/common.h"
#include "optim/optimizer.h"
#include "test.h"

typedef struct update_launch {
    sl_launch launch;
    sl_step_params step;
    float gate[4], options[SL_MAX_OPTIMIZER_OPTIONS];
    int64_t count;
    float *gradient, *parameter; /* the master if there is one */
    float *state[SL_MAX_STATES]; /* bytes of codes, where the optimizer has those */
    sl_bf16 *narrow[2];          /* bf16: gradient and parameter */
} update_launch;

/* Between -1 and 1, by place. */
static inline double noise_at(uint64_t seed, int64_t i)
{
    const sl_rng4 r = sl_philox(seed, (uint64_t) i, 0);
    return (double) r.v[0] / 2147483648.0 - 1;
}

/* `count` elements, zeros; `update` without its options, which are the defaults. */
static inline void update_launch_create(update_launch *u, sl_optimizer optimizer, bool bf16, sl_update update,
                                        int64_t count)
{
    const sl_optimizer_def *def = sl_optimizer_of(optimizer);
    sl_launch *launch = &u->launch;
    memset(u, 0, sizeof *u);
    sl_optimizer_defaults(optimizer, u->options);
    update.options = u->options;
    launch->op = def->op;
    def->set_attrs(&update, &launch->attrs);
    u->count = count;
    const sl_type wide = sl_type_1d(SL_F32, count), narrow = sl_type_1d(SL_BF16, count);
    CHECK_OK(sl_alloc(&u->gradient, count, sizeof(float)));
    CHECK_OK(sl_alloc(&u->parameter, count, sizeof(float)));
    for (int k = 0; k < 2; k++)
        CHECK_OK(sl_alloc(&u->narrow[k], count, sizeof(sl_bf16)));
    launch->in[0] = bf16 ? (sl_operand){u->narrow[0], narrow} : (sl_operand){u->gradient, wide};
    launch->in[1] = (sl_operand){&u->step, sl_type_1d(SL_I32, SL_STEP_WORDS)};
    launch->out[0] = bf16 ? (sl_operand){u->narrow[1], narrow} : (sl_operand){u->parameter, wide};
    for (int k = 0; k < def->n_states; k++) {
        const sl_type type = sl_state_type(sl_optimizer_slot(def, k), SL_F32, count);
        CHECK_OK(sl_alloc(&u->state[k], (int64_t) sl_type_bytes(&type) / 4, 4));
        launch->out[1 + k] = (sl_operand){u->state[k], type};
    }
    if (bf16)
        launch->out[1 + def->n_states] = (sl_operand){u->parameter, wide};
    const sl_type in[SL_MAX_IN] = {launch->in[0].type, launch->in[1].type};
    sl_type out[SL_MAX_OUT];
    CHECK_OK(sl_op(def->op)->infer(&launch->attrs, in, out));
    if (sl_op(def->op)->workspace) {
        launch->workspace_bytes = sl_op(def->op)->workspace(launch);
        CHECK_OK(sl_alloc_aligned(&launch->workspace, (int64_t) launch->workspace_bytes, 1, 64));
    }
}

static inline void update_launch_destroy(update_launch *u)
{
    sl_free(u->gradient);
    sl_free(u->parameter);
    sl_free(u->narrow[0]);
    sl_free(u->narrow[1]);
    for (int k = 0; k < SL_MAX_STATES; k++)
        sl_free(u->state[k]);
    sl_free(u->launch.workspace);
}

/* Runs update number t of the optimizer. */
static inline void update_launch_run(update_launch *u, sl_optimizer optimizer, float learning_rate, int64_t t)
{
    const sl_optimizer_def *def = sl_optimizer_of(optimizer);
    u->step.learning_rate = learning_rate;
    u->step.step = (uint32_t) t;
    if (def->correct)
        def->correct(u->options, (double) t, u->step.corrections[0]);
    for (int64_t i = 0; i < u->count; i++)
        u->narrow[0][i] = sl_f32_to_bf16(u->gradient[i]);
    sl_op(def->op)->reference(&u->launch);
}

#endif
