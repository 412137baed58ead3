/* Inside the drawings: a frame with axes. */
#ifndef SL_REPORT_AXES_H
#define SL_REPORT_AXES_H

#include "report/chart.h"

typedef struct sl_axes {
    sl_scale x, y; /* in the axes' own units: value * x_factor */
    double left, top, right, bottom;
    double x_factor, y_factor;
} sl_axes;

typedef struct sl_axes_config {
    const char *x_label, *y_label;
    sl_quantity x_quantity, y_quantity;
    double x_low, x_high, y_low, y_high;
    bool log_x, log_y;
    double width, height;
    double head; /* kept free above the frame, for texts there */
} sl_axes_config;

/* Draws grid lines, numbers and labels, and tells where things go. */
void sl_axes_draw(sl_text *out, const sl_axes_config *config, sl_axes *axes);
double sl_axes_x(const sl_axes *axes, double value);
double sl_axes_y(const sl_axes *axes, double value);

#endif
