/*
 * The roofline: how much arithmetic a byte from memory feeds (x) against how much is done in a second (y). Under the slanted part
 * memory bandwidth is the limit, under the flat part arithmetic; the distance from the roof is what a kernel could still gain.
 * The heaviest points carry their names; a name that would lie on another one is left to the tool tip and the table.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/axes.h"

enum { MOST_NAMES = 10, MOST_TAKEN = 512, ROOF_PIECES = 72 };

typedef struct box {
    double left, top, right, bottom;
} box;

/* Where the two parts meet; 0: there is no roof to draw. */
static double ridge_of(const sl_roof *r)
{
    double ridge = r->peak > 0 && r->bandwidth > 0 ? r->peak / r->bandwidth : 0;
    return ridge > 1e-30 && ridge < 1e30 ? ridge : 0;
}

static bool overlaps(const box *a, const box *b)
{
    return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

/* A place for the point's name that lies on none before it: right, left, above, below. */
static bool place_name(const sl_axes *a, double x, double y, double radius, const char *name, const box *taken, int n,
                       box *out)
{
    double width = sl_text_width(name, 11) + 4;
    const box tries[] = {{x + radius + 3, y - 7, x + radius + 3 + width, y + 6},
                         {x - radius - 3 - width, y - 7, x - radius - 3, y + 6},
                         {x - width / 2, y - radius - 16, x + width / 2, y - radius - 3},
                         {x - width / 2, y + radius + 3, x + width / 2, y + radius + 16}};
    for (int t = 0; t < 4; t++) {
        bool free = tries[t].left >= a->left && tries[t].right <= a->right + 8 && tries[t].top >= a->top - 10 &&
                    tries[t].bottom <= a->bottom;
        for (int i = 0; i < n && free; i++)
            free = !overlaps(&tries[t], &taken[i]);
        if (free) {
            *out = tries[t];
            return true;
        }
    }
    return false;
}

static void draw_roof(sl_text *out, const sl_axes *a, const sl_roof *r, double x_low, double x_high, double y_low)
{
    double ridge = ridge_of(r);
    if (ridge == 0)
        return;
    /* From where the slanted part enters the frame. */
    double from = fmin(fmax(x_low, y_low / r->bandwidth), ridge), to = fmax(x_high, ridge);
    char text[96], ridge_text[32];
    sl_text_printf(out, "<path class=\"l c-roof\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1f\"/>", sl_axes_x(a, from),
                   sl_axes_y(a, from * r->bandwidth), sl_axes_x(a, ridge), sl_axes_y(a, r->peak), sl_axes_x(a, to),
                   sl_axes_y(a, r->peak));
    snprintf(text, sizeof text, "ridge %s FLOP/B", sl_show(ridge, ridge_text));
    double x = fmin(sl_axes_x(a, ridge), a->right - sl_text_width(text, 11) / 2);
    sl_svg_text(out, fmax(x, a->left + sl_text_width(text, 11) / 2), sl_axes_y(a, r->peak) - 7, "middle", "num", text);
}

static double radius_of(const sl_roof_point *p, double heaviest)
{
    return heaviest > 0 ? 3.5 + 7 * sqrt(fmax(p->weight, 0) / heaviest) : 4.5;
}

/* Small boxes along the roof, and the one where the ridge's name stands. */
static int take_roof(const sl_axes *a, const sl_roof *r, box *taken)
{
    int n = 0;
    if (ridge_of(r) == 0)
        return 0;
    for (; n < ROOF_PIECES; n++) {
        double x = a->left + (a->right - a->left) * (n + 0.5) / ROOF_PIECES,
               half = (a->right - a->left) / ROOF_PIECES / 2;
        double intensity = a->x.low * pow(a->x.high / a->x.low, (n + 0.5) / ROOF_PIECES);
        double y = sl_axes_y(a, fmin(r->peak, intensity * r->bandwidth)), tall = 2 + half;
        taken[n] = (box){x - half, y - tall, x + half, y + tall};
    }
    double ridge = sl_axes_x(a, ridge_of(r)), y = sl_axes_y(a, r->peak);
    taken[n++] = (box){ridge - 60, y - 18, ridge + 60, y};
    return n;
}

/* Circles first: names keep off them as well as off each other. */
static void draw_points(sl_text *out, const sl_axes *a, const sl_roof *r, double heaviest)
{
    box taken[MOST_TAKEN];
    int n = take_roof(a, r, taken), named = 0;
    for (int i = 0; i < r->n_points; i++) {
        const sl_roof_point *p = &r->points[i];
        double x = sl_axes_x(a, p->x), y = sl_axes_y(a, p->y), radius = radius_of(p, heaviest);
        char rate[64], intensity[32];
        if (!isfinite(x) || !isfinite(y))
            continue;
        sl_text_printf(out, "<circle class=\"f %s point\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>", p->color, x, y,
                       radius);
        sl_html(out, p->name);
        sl_text_printf(out, ": %s at %s FLOP/B</title></circle>", sl_show_rate(p->y, "FLOP/s", rate),
                       sl_show(p->x, intensity));
        if (n < MOST_TAKEN - MOST_NAMES)
            taken[n++] = (box){x - radius, y - radius, x + radius, y + radius};
    }
    for (int i = 0; i < r->n_points && named < MOST_NAMES; i++) {
        const sl_roof_point *p = &r->points[i];
        double x = sl_axes_x(a, p->x), y = sl_axes_y(a, p->y);
        if (isfinite(x) && isfinite(y) && place_name(a, x, y, radius_of(p, heaviest), p->name, taken, n, &taken[n])) {
            sl_svg_text(out, taken[n].left + 2, taken[n].bottom - 2, "start", "num", p->name);
            n++;
            named++;
        }
    }
}

void sl_draw_roof(sl_text *out, const void *what, double width)
{
    const sl_roof *r = what;
    double height = width > 400 ? 320 : 260, heaviest = 0;
    double x_low = (double) INFINITY, x_high = 0, y_low = x_low, y_high = r->peak > 0 ? r->peak : 0;
    for (int i = 0; i < r->n_points; i++) {
        const sl_roof_point *p = &r->points[i];
        if (!(isfinite(p->x) && isfinite(p->y) && p->x > 0 && p->y > 0))
            continue;
        x_low = fmin(x_low, p->x), x_high = fmax(x_high, p->x);
        y_low = fmin(y_low, p->y), y_high = fmax(y_high, p->y);
        heaviest = fmax(heaviest, p->weight);
    }
    if (!(x_high > 0))
        x_low = 0.1, x_high = 100, y_low = fmax(y_high, 1) / 1e3;
    double ridge = ridge_of(r);
    if (ridge > 0) { /* both sides of it are in the picture */
        x_high = fmax(x_high, 4 * ridge);
        x_low = fmin(x_low, ridge / 12);
    }
    x_low /= 1.6, x_high *= 1.6, y_low /= 2, y_high = fmax(1.7 * y_high, 1);
    sl_axes a;
    sl_svg_begin(out, width, height, r->name);
    sl_axes_draw(out,
                 &(sl_axes_config){"arithmetic intensity (FLOP per byte)", "FLOP/s", SL_PLAIN, SL_PLAIN, x_low, x_high,
                                   y_low, y_high, true, true, width, height, 0},
                 &a);
    draw_roof(out, &a, r, x_low, x_high, y_low);
    draw_points(out, &a, r, heaviest);
    sl_svg_end(out);
}

void sl_roof_legend(sl_text *out, const sl_roof_point *points, int n)
{
    static const char *const kinds[][2] = {
        {"g-product", "dot-product"}, {"g-reduction", "reduction"}, {"g-elementwise", "elementwise"}};
    sl_legend_begin(out);
    for (int64_t k = 0; k < SL_COUNT(kinds); k++)
        for (int i = 0; i < n; i++)
            if (strcmp(points[i].color, kinds[k][0]) == 0) {
                sl_legend_item(out, kinds[k][0], kinds[k][1]);
                break;
            }
    sl_legend_end(out);
}
