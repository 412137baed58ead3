/* From numbers to places on paper and to words. No drawing here. */
#ifndef SL_REPORT_SCALE_H
#define SL_REPORT_SCALE_H

#include <stdbool.h>
#include <stdint.h>

/* What a number counts, which decides its unit and its form. */
/* SHARE: 0.5 is shown as 50 %; WHOLE: there is nothing between two whole numbers */
typedef enum sl_quantity { SL_PLAIN, SL_SECONDS, SL_BYTES, SL_SHARE, SL_WHOLE } sl_quantity;

/* Maps [low, high] to [from, to] in pixels, straight or by the logarithm. A range without extent maps to the middle; numbers that
 * have no place (not finite, or not positive on a logarithmic scale) give NaN, and those outside are clamped to the edge. */
typedef struct sl_scale {
    double low, high, from, to;
    bool log;
} sl_scale;
double sl_scale_at(const sl_scale *scale, double value);

/* Round numbers (1, 2, 5 times a power of ten) inside [low, high], at most `most`; on a logarithmic scale powers of ten, with 2 and
 * 5 between where there are few. Returns how many. */
enum { SL_MOST_TICKS = 12 };
int sl_ticks(double low, double high, bool log, int most, double out[SL_MOST_TICKS]);
/* Widens the range to round numbers; keeps 0 in it if `zero`. */
void sl_widen(double *low, double *high, bool log, bool zero);

/* "15,525", "0.235", "1.20e-7", "–" where there is none. */
char *sl_show(double value, char out[32]);
/* For cells and axes: "11.4k", "950", "0.25". */
char *sl_show_short(double value, char out[32]);
/* "131 GFLOP/s" of 1.31e11 and "FLOP/s". */
char *sl_show_rate(double value, const char *unit, char out[64]);
/* With its unit: "132 ms", "32.0 MiB", "23.5 %". */
char *sl_show_as(double value, sl_quantity quantity, char out[32]);

/* The unit of an axis that goes up to `largest`: its label ("ms", "GiB", "%", "") and what to multiply with. */
double sl_axis_unit(double largest, sl_quantity quantity, const char **label);

/* Bytes, or "unlimited" where a budget is infinite. */
const char *sl_show_budget(double bytes, char out[32]);

#endif
