/*
 * Lines and dots over axes. A series may have a hundred thousand points and the drawing a few hundred pixels: where there are more
 * than two points to a pixel column, only the lowest and the highest of each column are drawn, in their order, which looks the
 * same as drawing all of them.
 */
#include <math.h>

#include "report/axes.h"

/* A line being drawn: points without a place break it. */
typedef struct pen {
    sl_text *out;
    bool down;
} pen;

static void pen_to(pen *p, double x, double y)
{
    if (!isfinite(x) || !isfinite(y)) {
        p->down = false;
        return;
    }
    sl_text_printf(p->out, "%s%.1f %.1f", p->down ? "L" : "M", x, y);
    p->down = true;
}

static void draw_thinned(pen *p, const sl_axes *a, const sl_series *s)
{
    for (int64_t i = 0; i < s->n;) {
        double column = floor(sl_axes_x(a, s->x[i]));
        int64_t low = i, high = i;
        for (; i < s->n && (floor(sl_axes_x(a, s->x[i])) == column || !isfinite(s->y[i])); i++) {
            low = s->y[i] < s->y[low] || !isfinite(s->y[low]) ? i : low;
            high = s->y[i] > s->y[high] || !isfinite(s->y[high]) ? i : high;
        }
        i = SL_MAX(i, SL_MAX(low, high) + 1);
        int64_t first = SL_MIN(low, high), second = SL_MAX(low, high);
        pen_to(p, sl_axes_x(a, s->x[first]), sl_axes_y(a, s->y[first]));
        if (second != first)
            pen_to(p, sl_axes_x(a, s->x[second]), sl_axes_y(a, s->y[second]));
    }
}

static void draw_dots(sl_text *out, const sl_axes *a, const sl_series *s)
{
    char x[32], y[32];
    for (int64_t i = 0; i < s->n; i++) {
        double cx = sl_axes_x(a, s->x[i]), cy = sl_axes_y(a, s->y[i]);
        if (isfinite(cx) && isfinite(cy))
            sl_text_printf(out,
                           "<circle class=\"f %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s: %s</title></circle>",
                           s->color, cx, cy, sl_show(s->x[i], x), sl_show(s->y[i], y));
    }
}

static void draw_series(sl_text *out, const sl_axes *a, const sl_series *s)
{
    pen p = {out, false};
    if (s->style != SL_DOTS) {
        static const char *const extra[] = {"", " dash", "", " faint"};
        sl_text_printf(out, "<path class=\"l %s%s\" d=\"", s->color, extra[s->style]);
        if ((double) s->n > 2 * (a->right - a->left))
            draw_thinned(&p, a, s);
        else
            for (int64_t i = 0; i < s->n; i++)
                pen_to(&p, sl_axes_x(a, s->x[i]), sl_axes_y(a, s->y[i]));
        sl_text_printf(out, "\"/>");
    }
    /* A line of a few points shows them; of one point there would be nothing else to see. */
    if (s->style == SL_DOTS || (s->style == SL_LINE && s->n <= 24))
        draw_dots(out, a, s);
}

static void extend(double value, bool log, double *low, double *high)
{
    if (!isfinite(value) || (log && value <= 0))
        return;
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

void sl_draw_lines(sl_text *out, const void *what, double width)
{
    const sl_lines *lines = what;
    double x_low = (double) INFINITY, x_high = -(double) INFINITY, y_low = x_low, y_high = x_high;
    double height = width > 400 ? 260 : 220;
    sl_axes axes;
    for (int s = 0; s < lines->n_series; s++)
        for (int64_t i = 0; i < lines->series[s].n; i++) {
            extend(lines->series[s].x[i], lines->log_x, &x_low, &x_high);
            extend(lines->series[s].y[i], lines->log_y, &y_low, &y_high);
        }
    if (lines->zero_y && !lines->log_y)
        extend(0, false, &y_low, &y_high);
    if (!(x_high >= x_low)) /* nothing to see */
        x_low = y_low = lines->log_x || lines->log_y ? 1 : 0, x_high = y_high = 1;
    sl_svg_begin(out, width, height, lines->name);
    sl_axes_draw(out,
                 &(sl_axes_config){lines->x_label, lines->y_label, lines->x_quantity, lines->y_quantity, x_low, x_high,
                                   y_low, y_high, lines->log_x, lines->log_y, width, height},
                 &axes);
    for (int s = 0; s < lines->n_series; s++)
        draw_series(out, &axes, &lines->series[s]);
    sl_svg_end(out);
}
