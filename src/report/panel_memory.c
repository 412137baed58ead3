/* Memory by class as areas on top of each other, with the budget as a line: what takes the room, and how near the edge it is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/axes.h"
#include "report/panels.h"

enum { MOMENTS = 280, NARROW_MOMENTS = 150 };

typedef struct memory_drawing {
    const char *name;
    const sl_memory *moments;
    int n;
    double peak, budget, end_s;
} memory_drawing;

static const char *const class_colors[SL_LOG_CLASSES] = {"k-parameter",  "k-gradient", "k-optimizer",
                                                         "k-activation", "k-context",  "k-hidden",
                                                         "k-workspace",  "k-data",     "k-result"};

/* The area between two stacked sums, in steps; moments that change nothing are passed over. */
static void draw_area(sl_text *out, const memory_drawing *d, const sl_axes *a, int step, int class)
{
    sl_text_printf(out, "<path class=\"f %s\" d=\"M", class_colors[class]);
    for (int way = 0; way < 2; way++) {
        double last = -1;
        for (int k = 0; k < d->n / step; k++) {
            int m = way ? d->n / step - 1 - k : k;
            double sum = 0;
            for (int i = 0; i < step; i++) { /* the fullest of those drawn as one */
                double here = 0;
                for (int c = 0; c < class + !way; c++)
                    here += d->moments[m * step + i].bytes[c];
                sum = fmax(sum, here);
            }
            double y = sl_axes_y(a, sum), from = d->end_s * (m * step) / d->n, to = d->end_s * ((m + 1) * step) / d->n;
            double x0 = sl_axes_x(a, way ? to : from), x1 = sl_axes_x(a, way ? from : to);
            if (k == 0)
                sl_text_printf(out, way ? "V%.1f" : "%.1f %.1f", way ? y : x0, y);
            else if (fabs(y - last) >= 0.05)
                sl_text_printf(out, "H%.1fV%.1f", x0, y);
            if (k == d->n / step - 1)
                sl_text_printf(out, "H%.1f", x1);
            last = y;
        }
    }
    sl_text_printf(out, "Z\"><title>%s</title></path>", sl_log_class_names[class]);
}

static bool has_class(const memory_drawing *d, int class)
{
    for (int m = 0; m < d->n; m++)
        if (d->moments[m].bytes[class] > 0)
            return true;
    return false;
}

static void draw_memory(sl_text *out, const void *what, double width)
{
    const memory_drawing *d = what;
    double height = width > 400 ? 250 : 220;
    bool near = isfinite(d->budget) && d->budget > 0 && d->budget <= 2 * d->peak;
    sl_axes a;
    sl_svg_begin(out, width, height, d->name);
    sl_axes_draw(out,
                 &(sl_axes_config){"time in the step", "memory", SL_SECONDS, SL_BYTES, 0, d->end_s, 0,
                                   1.08 * (near ? fmax(d->peak, d->budget) : d->peak), false, false, width, height, 0},
                 &a);
    for (int c = 0; c < SL_LOG_CLASSES; c++)
        if (has_class(d, c))
            draw_area(out, d, &a, width > 400 ? 1 : MOMENTS / NARROW_MOMENTS, c);
    if (near) {
        char text[64], bytes[32];
        double y = sl_axes_y(&a, d->budget);
        sl_text_printf(out, "<line class=\"budget\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", a.left, y,
                       a.right, y);
        strcpy(text, "budget ");
        strcat(text, sl_show_as(d->budget, SL_BYTES, bytes));
        sl_svg_text(out, a.right, y - 5, "end", "num strong", text);
    }
    sl_svg_end(out);
}

static void draw_tier(sl_text *out, const sl_run_log *log, int tier)
{
    sl_memory moments[MOMENTS];
    double peak;
    bool there;
    char title[128], sub[256], a[32], b[32], id[32];
    if (sl_memory_over_time(log, tier, MOMENTS, moments, &peak, &there) != SL_OK || !there)
        return;
    double budget = log->measured.budget_bytes[tier];
    if (isnan(budget))
        budget = log->predicted.budget_bytes[tier];
    memory_drawing d = {title, moments, MOMENTS, peak, budget, 1e-9 * (double) sl_log_end_ns(log, false)};
    const char *name = tier == 0 ? "Device" : "Host";
    snprintf(title, sizeof title,
             isfinite(budget) ? "%s memory: %s at most, of a budget of %s" : "%s memory: %s at most", name,
             sl_show_as(peak, SL_BYTES, a), sl_show_as(budget, SL_BYTES, b));
    snprintf(sub, sizeof sub, "Bytes alive in the arena during step %lld, by class.%s", (long long) log->timeline_step,
             isfinite(budget) && budget > 2 * peak ? " The budget lies far above the drawing." : "");
    snprintf(id, sizeof id, "memory-%s", sl_log_tier_names[tier]);
    sl_panel_begin(out, id, false, title, sub);
    sl_legend_begin(out);
    for (int c = 0; c < SL_LOG_CLASSES; c++)
        if (has_class(&d, c))
            sl_legend_item(out, class_colors[c], sl_log_class_names[c]);
    sl_legend_end(out);
    sl_draw_twice(out, draw_memory, &d, SL_HALF);
    sl_panel_end(out);
}

void sl_panel_memory(sl_text *out, const sl_run_log *log)
{
    for (int tier = 0; tier < SL_LOG_TIERS; tier++)
        draw_tier(out, log, tier);
}
