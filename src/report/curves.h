/* What a run's steps say, as arrays over the steps: for its own charts and for those that compare runs. */
#ifndef SL_REPORT_CURVES_H
#define SL_REPORT_CURVES_H

#include "report/chart.h"
#include "report/input.h"

enum { SL_SMOOTHED_FROM = 40 }; /* steps: shorter runs are shown as they are */

typedef struct sl_curves {
    double *step, *loss, *smooth_loss, *norm, *smooth_norm, *rate, *speed; /* of every step */
    double *val_step, *val_loss;
    int64_t n, n_val;
    double window; /* steps over which the smoothed ones are averaged */
    void *memory;
} sl_curves;

/* Free them with sl_curves_free. */
sl_status sl_curves_of(const sl_run_log *log, sl_curves *curves);
/* Is any of the values finite? */
bool sl_curve_is_known(const double *values, int64_t n);
void sl_curves_free(sl_curves *curves);

/* An exponential moving average: each step counts 1 - 1 / window of the one behind it, corrected for the beginning, so the
 * first value is the first of `values`. Values that are not finite are left out. */
void sl_smooth(const double *values, int64_t n, double window, double *smooth);
/* A fiftieth of the run, at least 4 steps. */
double sl_smoothing_window(int64_t steps);

#endif
