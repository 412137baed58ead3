/*
 * With t the step, w warm-up steps, n steps in all, p the peak and m the least rate:
 *
 *     t <= w:      p * t / w                                      (never 0: the first step already learns)
 *     constant:    p
 *     cosine:      m + (p - m) * (1 + cos(pi * (t - w) / (n - w))) / 2
 *     wsd:         p, then over the last d steps p + (m - p) * (t - (n - d)) / d
 *
 * n is what this start was asked for: a run that is resumed with more steps has the longer schedule's rates from there on. Past n,
 * where no run comes, the rate stays at m.
 */
#include "train/schedule.h"

#include <math.h>

double sl_schedule_at(const sl_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    if (step <= s->warmup)
        return s->peak * (double) step / (double) s->warmup;
    if (s->kind == SL_SCHEDULE_CONSTANT)
        return s->peak;
    if (step >= s->steps)
        return s->least;
    if (s->kind == SL_SCHEDULE_COSINE) {
        double done = (double) (step - s->warmup) / (double) (s->steps - s->warmup);
        return s->least + (s->peak - s->least) * (1 + cos(pi * done)) / 2;
    }
    int64_t stable = s->steps - s->decay;
    if (step <= stable)
        return s->peak;
    return s->peak + (s->least - s->peak) * (double) (step - stable) / (double) s->decay;
}
