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
        sl_text_printf(out, "<path class=\"l %s%s", s->color, extra[s->style]);
        sl_text_printf(out, s->dash ? " d%d\" d=\"" : "\" d=\"", s->dash);
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

enum { MARK_SIZE = 14, MOST_MARKS = 32 };

typedef struct spot {
    double x, y;
} spot;

static bool is_free(const spot *taken, int n, const spot *at)
{
    for (int i = 0; i < n; i++)
        if (fabs(taken[i].x - at->x) < MARK_SIZE && fabs(taken[i].y - at->y) < MARK_SIZE)
            return false;
    return true;
}

/* The point of a line that is nearest to column x and free of other marks; of all points, where none is free. */
static bool find_spot(const sl_axes *a, const sl_series *line, double x, const spot *taken, int n, spot *found)
{
    double nearest[2] = {(double) INFINITY, (double) INFINITY}; /* any, free */
    for (int64_t i = 0; i < line->n; i++) {
        spot at = {sl_axes_x(a, line->x[i]), fmax(sl_axes_y(a, line->y[i]) + 4, a->top + 10)};
        double off = fabs(at.x - x);
        bool unused = is_free(taken, n, &at);
        if (!isfinite(at.x) || !isfinite(at.y) || !(off < nearest[unused]) || (!unused && isfinite(nearest[1])))
            continue;
        nearest[unused] = off;
        *found = at;
    }
    return isfinite(nearest[0]) || isfinite(nearest[1]);
}

/* Marks stand on their lines, each towards a column of its own, so that they do not meet however close the lines are. */
static void draw_marks(sl_text *out, const sl_axes *a, const sl_lines *lines)
{
    spot taken[MOST_MARKS];
    int marks = 0, n = 0;
    for (int s = 0; s < lines->n_series; s++)
        marks += lines->series[s].mark != NULL;
    for (int s = 0; s < lines->n_series && n < MOST_MARKS; s++) {
        const sl_series *line = &lines->series[s];
        double x = a->left + (a->right - a->left) * (n + 1) / (marks + 1);
        if (!line->mark || !find_spot(a, line, x, taken, n, &taken[n]))
            continue;
        sl_svg_text(out, taken[n].x, taken[n].y, "middle", "mark", line->mark);
        n++;
    }
}

static void draw_events(sl_text *out, const sl_axes *a, const sl_lines *lines)
{
    double last = -1e9;
    for (int64_t i = 0; i < lines->n_events; i++) {
        const sl_event_mark *event = &lines->events[i];
        double x = sl_axes_x(a, event->x), half = sl_text_width(event->text, 11) / 2;
        if (!isfinite(x))
            continue;
        sl_text_printf(out, "<line class=\"event\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x, a->top, x,
                       a->bottom);
        double at = fmin(fmax(x, a->left + half), a->right + 10 - half);
        if (at - half < last + 6)
            continue; /* the table of sessions has all of them */
        sl_svg_text(out, at, a->top - 6, "middle", "num", event->text);
        last = at + half;
    }
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
                                   y_low, y_high, lines->log_x, lines->log_y, width, height, lines->n_events ? 10 : 0},
                 &axes);
    for (int s = 0; s < lines->n_series; s++)
        draw_series(out, &axes, &lines->series[s]);
    draw_marks(out, &axes, lines);
    draw_events(out, &axes, lines);
    sl_svg_end(out);
}
