/* Gradients of tiny models against finite differences of the loss. */
#ifndef SL_TESTS_MODEL_DIFFERENCES_H
#define SL_TESTS_MODEL_DIFFERENCES_H

#include <math.h>

#include "model/interpret.h"

enum { SEQLEN = 12, SEQUENCES = 4 };

static inline void set_random_data(interpreter *it, int32_t vocab)
{
    int32_t tokens[SEQLEN * SEQUENCES], targets[SEQLEN * SEQUENCES];
    for (int i = 0; i < SEQLEN * SEQUENCES; i++) {
        sl_rng4 r = sl_philox(7, (uint64_t) i, 1);
        tokens[i] = (int32_t) (r.v[0] % (uint32_t) vocab);
        targets[i] = i % 7 == 3 ? -100 : (int32_t) (r.v[1] % (uint32_t) vocab); /* some count for nothing */
    }
    interpret_set_data(it, tokens, targets);
    if (it->program->step_object >= 0)
        interpret_step_params(it)->seed_lo = 42;
}

static inline interpreter start(sl_model *model, sl_program_config config)
{
    interpreter it = interpret_create(model, &config);
    interpret_init(&it, 11, 0.3f);
    set_random_data(&it, (int32_t) model->vocab);
    return it;
}

/* ---- finite differences ---- */

/* All parameters of one kind, moved along a random direction. */
static inline void move(interpreter *it, int32_t param, float by)
{
    float *data = (float *) (void *) interpret_param(it, param);
    for (int64_t i = 0; i < sl_type_count(&it->program->params[param].type); i++)
        data[i] += by * interpret_noise(900, i);
}

static inline double loss_of(interpreter *it)
{
    interpret_step(it, false);
    return interpret_loss(it);
}

static inline double slope_of(interpreter *it, int32_t param, float step)
{
    move(it, param, step);
    double up = loss_of(it);
    move(it, param, -2 * step);
    double down = loss_of(it);
    move(it, param, step);
    return (up - down) / (2 * (double) step);
}

static inline void check_differences(sl_model model, int64_t chunk_tokens)
{
    interpreter it = start(&model, interpret_config(SEQLEN, SEQUENCES, chunk_tokens, SL_PRECISION_F32));
    const float step = 1e-3f;
    for (int32_t p = 0; p < it.program->n_params; p++) {
        const sl_param *param = &it.program->params[p];
        double predicted = 0, size = 0;
        interpret_step(&it, false);
        const float *gradient = (const float *) (const void *) interpret_gradient(&it, p);
        for (int64_t i = 0; i < sl_type_count(&param->type); i++) {
            predicted += (double) gradient[i] * (double) interpret_noise(900, i);
            size += (double) gradient[i] * (double) gradient[i];
        }
        double measured = (4 * slope_of(&it, p, step) - slope_of(&it, p, 2 * step)) / 3; /* Richardson: error step^4 */
        CHECK_MSG(fabs(measured - predicted) <= 2e-3 * sqrt(size) + 2e-4,
                  "%s: slope %.6g, gradient says %.6g (norm %.3g)", param->name, measured, predicted, sqrt(size));
    }
    interpret_destroy(&it);
}

#endif
