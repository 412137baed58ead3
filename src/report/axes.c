/* The unit stands once, in the axis' label ("device memory (GiB)"), and the numbers are short: a frame must be readable at the
 * width of a phone. The left margin is as wide as the widest number needs. */
#include "report/axes.h"

#include <math.h>
#include <stdio.h>

enum { LABEL = 12, NUMBER = 11 };

static void label_with_unit(const char *label, const char *unit, char out[96])
{
    snprintf(out, 96, *unit ? "%s (%s)" : "%s", label, unit);
}

double sl_axes_x(const sl_axes *a, double value)
{
    return sl_scale_at(&a->x, value * a->x_factor);
}

double sl_axes_y(const sl_axes *a, double value)
{
    return sl_scale_at(&a->y, value * a->y_factor);
}

static void draw_y(sl_text *out, const sl_axes *a, const double *ticks, int n)
{
    char text[32];
    for (int i = 0; i < n; i++) {
        double y = sl_scale_at(&a->y, ticks[i]);
        sl_text_printf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", a->left, y,
                       a->right, y);
        sl_svg_text(out, a->left - 6, y + 4, "end", "num", sl_show_short(ticks[i], text));
    }
}

static void draw_x(sl_text *out, const sl_axes *a, const double *ticks, int n)
{
    char text[32];
    double last = -1e9;
    for (int i = 0; i < n; i++) {
        double x = sl_scale_at(&a->x, ticks[i]), half = sl_text_width(sl_show_short(ticks[i], text), NUMBER) / 2;
        sl_text_printf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x, a->bottom, x,
                       a->bottom + 4);
        if (x - half < last + 8)
            continue;
        /* The first and the last number may stand at the frame's edge: kept inside the drawing. */
        double at = fmin(x, a->right + 10 - half);
        sl_svg_text(out, at, a->bottom + 17, "middle", "num", text);
        last = at + half;
    }
}

static int whole_alone(double *ticks, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (fabs(ticks[i] - nearbyint(ticks[i])) < 1e-9)
            ticks[kept++] = ticks[i];
    return kept;
}

void sl_axes_draw(sl_text *out, const sl_axes_config *c, sl_axes *a)
{
    const char *x_unit, *y_unit;
    double ticks[SL_MOST_TICKS], widest = 0;
    char text[96], number[32];
    double x_low = c->x_low, x_high = c->x_high, y_low = c->y_low, y_high = c->y_high;
    a->x_factor = sl_axis_unit(x_high, c->x_quantity, &x_unit);
    a->y_factor = sl_axis_unit(fmax(fabs(y_high), fabs(y_low)), c->y_quantity, &y_unit);
    x_low *= a->x_factor, x_high *= a->x_factor;
    y_low *= a->y_factor, y_high *= a->y_factor;
    sl_widen(&y_low, &y_high, c->log_y, false);
    if (!(x_high > x_low))
        sl_widen(&x_low, &x_high, c->log_x, false);
    int n = sl_ticks(y_low, y_high, c->log_y, 6, ticks);
    for (int i = 0; i < n; i++)
        widest = fmax(widest, sl_text_width(sl_show_short(ticks[i], number), NUMBER));
    a->left = ceil(widest) + 12;
    a->top = 24 + c->head;
    a->right = c->width - 14;
    a->bottom = c->height - 40;
    a->x = (sl_scale){x_low, x_high, a->left, a->right, c->log_x};
    a->y = (sl_scale){y_low, y_high, a->bottom, a->top, c->log_y};
    draw_y(out, a, ticks, n);
    n = sl_ticks(x_low, x_high, c->log_x, c->width > 400 ? 9 : 5, ticks);
    if (c->x_quantity == SL_WHOLE)
        n = whole_alone(ticks, n);
    draw_x(out, a, ticks, n);
    sl_text_printf(out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", a->left, a->bottom,
                   a->right, a->bottom);
    label_with_unit(c->y_label, y_unit, text);
    sl_svg_text(out, 2, 12, "start", "lab", text);
    label_with_unit(c->x_label, x_unit, text);
    sl_svg_text(out, (a->left + a->right) / 2, c->height - 6, "middle", "lab", text);
}
