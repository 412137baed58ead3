/* Updates on the host against all ways to split them: where everything fits the device, the step ends with its updates, and an
 * update on the host is one less on the device. */
#include "synthetic.h"
#include "test.h"

enum { MOST = 4 };

/* One forward, one backward that ends with all gradients, then n updates. Copies take next to no time. */
static synthetic *step_of(int n, const double *device_s, const double *host_s)
{
    synthetic *s = synthetic_new(2 * n + 1, n + 2, n + 2);
    int32_t param[MOST], grad[MOST], act = synthetic_object(s, SL_CLASS_ACTIVATION, 256);
    for (int i = 0; i < 2; i++)
        s->costs->link_bytes_per_s[i] = s->costs->link_bytes_per_s_both[i] = 256e6;
    int32_t forward = synthetic_task(s, synthetic_kind(s, 5, INFINITY, 0), SL_PHASE_FORWARD, 0, 0, 0);
    int32_t backward = synthetic_task(s, synthetic_kind(s, 10, INFINITY, 0), SL_PHASE_BACKWARD, 0, 0, 0);
    synthetic_out(s, forward, act, false);
    synthetic_in(s, backward, act);
    for (int i = 0; i < n; i++) {
        param[i] = synthetic_object(s, SL_CLASS_PARAMETER, 256);
        grad[i] = synthetic_object(s, SL_CLASS_GRADIENT, 256);
        synthetic_in(s, forward, param[i]);
        synthetic_out(s, backward, grad[i], false);
    }
    for (int i = 0; i < n; i++) {
        int32_t t = synthetic_task(s, synthetic_kind(s, device_s[i], host_s[i], 0), SL_PHASE_OPTIMIZER, i, 0, 0);
        synthetic_in(s, t, grad[i]);
        synthetic_out(s, t, param[i], true);
        s->program.tasks[t].host_allowed = true;
    }
    for (int32_t o = 0; o < s->program.n_objects; o++)
        s->program.objects[o].group = s->program.objects[o].persistent ? o : -1;
    return s;
}

static double fastest(int n, const double *device_s, const double *host_s)
{
    double best = INFINITY;
    for (int set = 0; set < 1 << n; set++) {
        double device = 0, host = 0;
        for (int i = 0; i < n; i++)
            *(set >> i & 1 ? &host : &device) += set >> i & 1 ? host_s[i] : device_s[i];
        best = fmin(best, fmax(device, host));
    }
    return 15 + best;
}

TEST(split_as_well_as_any)
{
    static const double host_times[] = {1, 1.5, 2, 3, 20};
    for (int n = 1; n <= MOST; n++)
        for (int64_t h = 0; h < SL_COUNT(host_times); h++) {
            double device_s[MOST], host_s[MOST];
            for (int i = 0; i < n; i++)
                device_s[i] = 4, host_s[i] = 4 * host_times[h];
            synthetic *s = step_of(n, device_s, host_s);
            sl_plan_config config = {.budget = {1 << 20, 1 << 20}, .time_limit_s = 1e6};
            sl_plan *plan;
            CHECK_OK(sl_plan_create(&s->program, s->costs, &config, &plan));
            CHECK_OK(sl_plan_check(&s->program, plan, config.budget));
            CHECK_NEAR(plan->predicted.step_s, fastest(n, device_s, host_s), 1e-4);
            sl_plan_destroy(plan);
            synthetic_free(s);
        }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(split_as_well_as_any);
    return test_end();
}
