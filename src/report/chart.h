/*
 * Drawings as inline SVG. A drawing knows its width in CSS pixels and is drawn for it: text keeps its size, so a page holds each
 * drawing twice, for wide and for narrow windows, and shows the one that fits (sl_draw_twice). Colours are classes whose values
 * the page's style sheet sets, once for each theme.
 */
#ifndef SL_REPORT_CHART_H
#define SL_REPORT_CHART_H

#include "core/text.h"
#include "report/scale.h"

/* Text and attribute values: < & > " ' and control characters made harmless. */
void sl_html(sl_text *out, const char *text);
/* The same between two pieces of markup, which are appended as they are. */
void sl_html_in(sl_text *out, const char *open, const char *text, const char *close);

typedef void (*sl_draw_fn)(sl_text *out, const void *what, double width);
enum { SL_NARROW = 340, SL_HALF = 540, SL_FULL = 1110 };
/* `wide`: SL_HALF or SL_FULL. */
void sl_draw_twice(sl_text *out, sl_draw_fn draw, const void *what, double wide);

/* <svg> with a name for people who do not see it; ended with "</svg>". */
void sl_svg_begin(sl_text *out, double width, double height, const char *name);
void sl_svg_end(sl_text *out);
/* anchor: "start", "middle", "end" */
void sl_svg_text(sl_text *out, double x, double y, const char *anchor, const char *class, const char *text);
/* How wide a text will be at the size of labels, about. */
double sl_text_width(const char *text, double size);

typedef enum sl_series_style { SL_LINE, SL_DASHED, SL_DOTS, SL_FAINT } sl_series_style;
enum { SL_DASHES = 4 };
typedef struct sl_series {
    const char *name;  /* in the legend; NULL: not there */
    const char *color; /* class */
    const double *x, *y;
    int64_t n;
    sl_series_style style;
    int dash;         /* pattern of the line, 0 (solid) to SL_DASHES - 1 */
    const char *mark; /* a short text on the line, for eyes that cannot tell colours apart; NULL: none */
} sl_series;

static inline void sl_series_add(sl_series *list, int *count, const sl_series *series)
{
    list[*count] = *series;
    ++*count;
}

/* Something that happened at x: a dashed line from top to bottom with a short text above it. */
typedef struct sl_event_mark {
    double x;
    const char *text;
} sl_event_mark;

typedef struct sl_lines {
    const char *name, *x_label, *y_label;
    sl_quantity x_quantity, y_quantity;
    bool log_x, log_y, zero_y;
    const sl_series *series;
    int n_series;
    const sl_event_mark *events;
    int64_t n_events;
    const char *events_name; /* in the legend */
} sl_lines;
void sl_draw_lines(sl_text *out, const void *lines, double width);

typedef struct sl_bar {
    const char *label, *color;
    double value;
} sl_bar;
typedef struct sl_bars {
    const char *name, *unit; /* behind each number */
    sl_quantity quantity;
    const sl_bar *bars;
    int n_bars;
} sl_bars;
void sl_draw_bars(sl_text *out, const void *bars, double width);

/* Cells by row and column, rows from top to bottom; NaN is drawn as a cell that does not fit. */
typedef struct sl_heat {
    const char *name, *x_label, *y_label;
    const char *const *x_names, *const *y_names;
    const double *values;
    int n_x, n_y;
    sl_quantity quantity;
} sl_heat;
void sl_draw_heat(sl_text *out, const void *heat, double width);

/* One bar in parts that make a whole. */
typedef struct sl_part {
    const char *name, *color;
    double value;
} sl_part;
typedef struct sl_parts {
    const char *name;
    const sl_part *parts;
    int n_parts;
} sl_parts;
void sl_draw_parts(sl_text *out, const void *parts, double width);

/* A legend that wraps like text: colour squares and names. */
void sl_legend_begin(sl_text *out);
void sl_legend_item(sl_text *out, const char *color, const char *name);
/* With a piece of the line as it is drawn, and its mark. */
void sl_legend_line(sl_text *out, const sl_series *series);
/* Of the events: a piece of their line. */
void sl_legend_event(sl_text *out, const char *name);
void sl_legend_end(sl_text *out);

/* Points at (x, y) under a roof: y = min(peak, x * slope), on logarithmic axes. */
typedef struct sl_roof_point {
    const char *name, *color;
    double x, y, weight; /* weight: the area, relative to the largest */
} sl_roof_point;
typedef struct sl_roof {
    const char *name;
    double peak, bandwidth; /* FLOP/s, B/s; 0: not known */
    const sl_roof_point *points;
    int n_points;
} sl_roof;
void sl_draw_roof(sl_text *out, const void *roof, double width);
/* Of the categories of op that are among the points. */
void sl_roof_legend(sl_text *out, const sl_roof_point *points, int n);

#endif
