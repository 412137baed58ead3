/* A trainer in its plainest form, to compare runs with: gradients from the ops' reference kernels (which test_golden compares with
 * PyTorch's), everything that the trainer adds to them in double precision and from the definitions: mean loss, global norm,
 * clipping, bias corrections, weight decay, learning rate by step, steps that are left out. No chunks, no rounds, no plan. */
#ifndef SL_TESTS_REFERENCE_TRAINER_H
#define SL_TESTS_REFERENCE_TRAINER_H

#include "model/interpret.h"

typedef enum reference_schedule { CONSTANT, COSINE, WSD } reference_schedule;

typedef struct reference_settings {
    bool sgd;
    reference_schedule schedule;
    double lr, least;
    int warmup, decay_steps, steps;
    double weight_decay, beta1, beta2, eps, momentum, clip;
} reference_settings;

typedef struct reference_trainer {
    reference_settings settings;
    interpreter it;
    double **weight, **moment1, **moment2; /* by parameter */
    int step, updates;                     /* done; of them, those that changed the weights */
} reference_trainer;

typedef struct reference_result {
    double loss, norm, rate;
    bool skipped, clipped;
} reference_result;

static double *reference_zeros(int64_t count)
{
    double *values = calloc((size_t) count, sizeof *values);
    REQUIRE(values != NULL);
    return values;
}

/* The weights are those in `tensors`, under Hugging Face's names. */
static inline void reference_create(reference_trainer *r, sl_model *model, sl_tensors *tensors, int64_t seqlen,
                                    int64_t sequences, const reference_settings *settings)
{
    static char buffer[SL_PARAM_BUFFER_BYTES];
    sl_program_config config = interpret_config(seqlen, sequences, seqlen * sequences, SL_PRECISION_F32);
    *r = (reference_trainer){.settings = *settings, .it = interpret_create(model, &config)};
    int32_t n = r->it.program->n_params;
    double ***parts[] = {&r->weight, &r->moment1, &r->moment2};
    for (int i = 0; i < 3; i++)
        *parts[i] = calloc((size_t) n, sizeof **parts[i]);
    for (int32_t p = 0; p < n; p++) {
        const sl_param *param = &r->it.program->params[p];
        int64_t count = sl_type_count(&param->type);
        const float *loaded = (const float *) (const void *) interpret_param(&r->it, p);
        CHECK_OK(
            sl_param_load(tensors, param, SL_F32, buffer, sizeof buffer, interpret_write, interpret_param(&r->it, p)));
        for (int i = 0; i < 3; i++)
            (*parts[i])[p] = reference_zeros(count);
        for (int64_t i = 0; i < count; i++)
            r->weight[p][i] = (double) loaded[i];
    }
}

static inline void reference_destroy(reference_trainer *r)
{
    double **parts[] = {r->weight, r->moment1, r->moment2};
    for (int i = 0; i < 3; i++) {
        for (int32_t p = 0; p < r->it.program->n_params; p++)
            free(parts[i][p]);
        free(parts[i]);
    }
    interpret_destroy(&r->it);
}

static inline double reference_rate(const reference_settings *s, int step)
{
    if (step <= s->warmup)
        return s->lr * step / s->warmup;
    if (s->schedule == COSINE)
        return s->least +
               (s->lr - s->least) * 0.5 * (1 + cos(acos(-1.0) * (step - s->warmup) / (s->steps - s->warmup)));
    int left = s->steps - step; /* wsd: steps after this one */
    if (s->schedule == WSD && left < s->decay_steps)
        return s->least + (s->lr - s->least) * left / s->decay_steps;
    return s->lr;
}

static inline void reference_update(reference_trainer *r, double rate, double factor)
{
    const reference_settings *s = &r->settings;
    r->updates++;
    double bias1 = 1 - pow(s->beta1, r->updates), bias2 = 1 - pow(s->beta2, r->updates);
    for (int32_t p = 0; p < r->it.program->n_params; p++) {
        const sl_type *type = &r->it.program->params[p].type;
        float *weights = (float *) (void *) interpret_param(&r->it, p);
        const float *gradient = (const float *) (const void *) interpret_gradient(&r->it, p);
        double *w = r->weight[p], *m = r->moment1[p], *v = r->moment2[p];
        double decay = type->rank > 1 ? s->weight_decay : 0; /* matrices only */
        for (int64_t i = 0; i < sl_type_count(type); i++) {
            double g = (double) gradient[i] * factor;
            if (s->sgd) {
                m[i] = s->momentum * m[i] + g + decay * w[i];
                w[i] -= rate * m[i];
            } else {
                m[i] = s->beta1 * m[i] + (1 - s->beta1) * g;
                v[i] = s->beta2 * v[i] + (1 - s->beta2) * g * g;
                w[i] = w[i] * (1 - rate * decay) - rate * (m[i] / bias1) / (sqrt(v[i] / bias2) + s->eps);
            }
            weights[i] = (float) w[i];
        }
    }
}

/* One step on [sequences, seqlen] tokens and targets. */
static inline reference_result reference_step(reference_trainer *r, const int32_t *tokens, const int32_t *targets)
{
    const reference_settings *s = &r->settings;
    reference_result result = {.rate = reference_rate(s, ++r->step)};
    double squares = 0;
    interpret_set_data(&r->it, tokens, targets);
    interpret_step(&r->it, false);
    result.loss = interpret_loss(&r->it);
    for (int32_t p = 0; p < r->it.program->n_params; p++) {
        const float *gradient = (const float *) (const void *) interpret_gradient(&r->it, p);
        for (int64_t i = 0; i < sl_type_count(&r->it.program->params[p].type); i++)
            squares += (double) gradient[i] * (double) gradient[i];
    }
    result.norm = sqrt(squares);
    result.skipped = !isfinite(result.loss) || !isfinite((float) squares); /* the trainer's sum of squares is f32 */
    result.clipped = s->clip > 0 && result.norm > s->clip;
    if (!result.skipped)
        reference_update(r, result.rate, result.clipped ? s->clip / result.norm : 1);
    return result;
}

#endif
