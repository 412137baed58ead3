/* Bars beside each other's names, a bar in parts, and heat maps: drawings without axes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/chart.h"

/* The longest beginning of `text` that fits the width and ends before a space, or inside a word that is too long; at least one
 * character. */
static size_t fitting(const char *text, double width, double size)
{
    char piece[256];
    size_t length = 0, best = 0;
    while (text[length]) {
        size_t next = length + 1;
        while (((unsigned char) text[next] & 0xc0) == 0x80)
            next++;
        snprintf(piece, sizeof piece, "%.*s", (int) SL_MIN(next, sizeof piece - 1), text);
        if (length > 0 && (next >= sizeof piece || sl_text_width(piece, size) > width))
            return best ? best : length;
        length = next;
        if (text[length] == ' ' || !text[length])
            best = length;
    }
    return length;
}

/* Draws `text` from (x, y) downwards in lines of at most `width`, or only counts them (out NULL). */
static int wrapped(sl_text *out, const char *text, double x, double y, double width, double size, double line_height)
{
    int lines = 0;
    do {
        size_t length = fitting(text, width, size);
        char piece[256];
        snprintf(piece, sizeof piece, "%.*s", (int) SL_MIN(length, sizeof piece - 1), text);
        if (out)
            sl_svg_text(out, x, y + lines * line_height, "start", "lab", piece);
        lines++;
        text += length;
        text += strspn(text, " ");
    } while (*text);
    return lines;
}

/* Names stand beside their bars, or where one is too long for that, all of them above, in as many lines as they need: a name that
 * is cut off says nothing. */
typedef struct bar_layout {
    bool above;
    double left, room; /* where bars begin, and the length of the longest */
} bar_layout;

enum { BAR_ROW = 22, BAR_TEXT = 12, BAR_LINE = 15, BAR_GAP = 6 };

static void bar_number(const sl_bars *bars, int i, char out[64])
{
    char shown[32];
    snprintf(out, 64, "%s%s%.24s", sl_show_as(bars->bars[i].value, bars->quantity, shown), *bars->unit ? " " : "",
             bars->unit);
}

static bar_layout lay_out_bars(const sl_bars *bars, double width)
{
    double names = 0, numbers = 0;
    char number[64];
    for (int i = 0; i < bars->n_bars; i++) {
        bar_number(bars, i, number);
        names = fmax(names, sl_text_width(bars->bars[i].label, BAR_TEXT));
        numbers = fmax(numbers, sl_text_width(number, BAR_TEXT));
    }
    bool above = names > 0.42 * width;
    double left = above ? 2 : names + 10;
    return (bar_layout){above, left, fmax(width - left - numbers - 12, 20)};
}

void sl_draw_bars(sl_text *out, const void *what, double width)
{
    const sl_bars *bars = what;
    bar_layout layout = lay_out_bars(bars, width);
    double largest = 0, height = 4, y = 2;
    char number[64];
    for (int i = 0; i < bars->n_bars; i++) {
        largest = isfinite(bars->bars[i].value) ? fmax(largest, bars->bars[i].value) : largest;
        height += BAR_ROW;
        if (layout.above)
            height += BAR_GAP + BAR_LINE * wrapped(NULL, bars->bars[i].label, 0, 0, width - 4, BAR_TEXT, BAR_LINE);
    }
    sl_svg_begin(out, width, height, bars->name);
    for (int i = 0; i < bars->n_bars; i++) {
        const sl_bar *bar = &bars->bars[i];
        double length = fmax(largest > 0 && bar->value > 0 ? layout.room * (bar->value / largest) : 0, 1);
        if (layout.above)
            y += BAR_GAP + BAR_LINE * wrapped(out, bar->label, 2, y + BAR_GAP + 11, width - 4, BAR_TEXT, BAR_LINE);
        else
            sl_svg_text(out, layout.left - 8, y + 15, "end", "lab", bar->label);
        sl_text_printf(out, "<rect class=\"f %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\"><title>",
                       bar->color, layout.left, y + 2, length, BAR_ROW - 6);
        sl_html(out, bar->label);
        sl_text_printf(out, "</title></rect>");
        bar_number(bars, i, number);
        sl_svg_text(out, layout.left + length + 6, y + 15, "start", "num", number);
        y += BAR_ROW;
    }
    sl_svg_end(out);
}

void sl_draw_parts(sl_text *out, const void *what, double width)
{
    const sl_parts *parts = what;
    double sum = 0, x = 0;
    char share[32];
    for (int i = 0; i < parts->n_parts; i++)
        sum += fmax(parts->parts[i].value, 0);
    sl_svg_begin(out, width, 34, parts->name);
    for (int i = 0; i < parts->n_parts && sum > 0; i++) {
        const sl_part *part = &parts->parts[i];
        double length = width * (fmax(part->value, 0) / sum);
        if (length < 0.05)
            continue;
        sl_text_printf(out, "<rect class=\"f %s\" x=\"%.1f\" y=\"2\" width=\"%.1f\" height=\"30\"><title>", part->color,
                       x, length);
        sl_html(out, part->name);
        sl_text_printf(out, ": %s</title></rect>", sl_show_as(part->value / sum, SL_SHARE, share));
        if (length > sl_text_width(share, 12) + 10)
            sl_svg_text(out, x + length / 2, 21, "middle", "onbar", share);
        x += length;
    }
    sl_svg_end(out);
}

/* ---- heat maps ---- */

/* From cold to hot; light enough on dark pages and dark enough on light ones, and still ordered without colour. */
static const double ramp[][3] = {{49, 54, 124},  {38, 99, 149},  {33, 145, 140},
                                 {84, 184, 108}, {176, 210, 74}, {246, 226, 92}};

static void heat_color(double share, int rgb[3])
{
    int steps = (int) (sizeof ramp / sizeof *ramp) - 1;
    double at = fmin(fmax(share, 0), 1) * steps;
    int i = at >= steps ? steps - 1 : (int) at;
    for (int c = 0; c < 3; c++)
        rgb[c] = (int) lround(ramp[i][c] + (at - i) * (ramp[i + 1][c] - ramp[i][c]));
}

/* All cells of a map are written in the same unit, so that they compare at a glance: what to divide by, and its name. */
static double heat_unit(const sl_heat *h, double high, const char **name)
{
    static const struct {
        double from;
        const char *name;
    } units[] = {{1e12, "trillions"}, {1e9, "billions"}, {1e6, "millions"}, {1e3, "thousands"}};
    if (h->quantity == SL_SHARE) {
        *name = "percent";
        return 0.01;
    }
    for (int i = 0; i < 4; i++)
        if (high >= units[i].from) {
            *name = units[i].name;
            return units[i].from;
        }
    *name = "";
    return 1;
}

static const char *heat_text(const sl_heat *h, double value, double unit, double high, char out[32])
{
    if (!isfinite(value))
        return "–";
    snprintf(out, 32, "%.*f",
             h->quantity == SL_SHARE || high / unit >= 100 ? 0
             : high / unit >= 10                           ? 1
                                                           : 2,
             value / unit);
    return out;
}

static void draw_cell(sl_text *out, const sl_heat *h, int row, int column, const double box[4], double share,
                      const char *label)
{
    double value = h->values[row * h->n_x + column];
    char text[32];
    int rgb[3];
    bool fits = isfinite(value);
    heat_color(share, rgb);
    if (fits)
        sl_text_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#%02x%02x%02x\"><title>",
                       box[0], box[1], box[2], box[3], rgb[0], rgb[1], rgb[2]);
    else
        sl_text_printf(out, "<rect class=\"empty\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
                       box[0], box[1], box[2], box[3]);
    sl_html(out, h->x_names[column]);
    sl_text_printf(out, " × ");
    sl_html(out, h->y_names[row]);
    sl_text_printf(out, ": %s</title></rect>", fits ? sl_show_as(value, h->quantity, text) : "does not fit");
    if (!label)
        return;
    double bright = 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2];
    sl_svg_text(out, box[0] + box[2] / 2, box[1] + box[3] / 2 + 4, "middle",
                !fits          ? "cell off"
                : bright > 130 ? "cell dark"
                               : "cell light",
                label);
}

/* Numbers under a row of cells: every one, or as many as there is room for. */
static void draw_x_names(sl_text *out, const sl_heat *h, double left, double cell, double y)
{
    double last = -1e9;
    for (int i = 0; i < h->n_x; i++) {
        double x = left + (i + 0.5) * cell, half = sl_text_width(h->x_names[i], 11) / 2;
        if (x - half < last + 5)
            continue;
        sl_svg_text(out, x, y, "middle", "num", h->x_names[i]);
        last = x + half;
    }
}

static void draw_key(sl_text *out, const sl_heat *h, double low, double high, double left, double right, double y)
{
    char text[32];
    int rgb[3];
    double from = left + 0.5 * (right - left) - 60;
    for (int i = 0; i < 24; i++) {
        heat_color((i + 0.5) / 24, rgb);
        sl_text_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"5.3\" height=\"8\" fill=\"#%02x%02x%02x\"/>",
                       from + 5 * i, y, rgb[0], rgb[1], rgb[2]);
    }
    sl_svg_text(out, from - 6, y + 8, "end", "num", sl_show_as(low, h->quantity, text));
    sl_svg_text(out, from + 126, y + 8, "start", "num", sl_show_as(high, h->quantity, text));
}

void sl_draw_heat(sl_text *out, const void *what, double width)
{
    const sl_heat *h = what;
    double low = (double) INFINITY, high = -(double) INFINITY, names = 0;
    for (int i = 0; i < h->n_x * h->n_y; i++)
        if (isfinite(h->values[i])) {
            low = fmin(low, h->values[i]);
            high = fmax(high, h->values[i]);
        }
    for (int i = 0; i < h->n_y; i++)
        names = fmax(names, sl_text_width(h->y_names[i], 11));
    const char *unit_name;
    char text[64], number[32];
    double left = names + 12, cell = (width - left - 6) / h->n_x, tall = fmin(fmax(cell * 0.6, 16), 30);
    double top = 24, bottom = top + tall * h->n_y, height = bottom + 58, unit = heat_unit(h, high, &unit_name);
    /* Either every cell has its number or none has. */
    bool labels = high >= low && sl_text_width(heat_text(h, high, unit, high, number), 11) <= cell - 1;
    sl_svg_begin(out, width, height, h->name);
    sl_svg_text(out, 2, 12, "start", "lab", h->y_label);
    if (labels && *unit_name) {
        snprintf(text, sizeof text, "in %s", unit_name);
        sl_svg_text(out, width - 6, 12, "end", "num", text);
    }
    for (int row = 0; row < h->n_y; row++) {
        sl_svg_text(out, left - 6, top + (row + 0.5) * tall + 4, "end", "num", h->y_names[row]);
        for (int column = 0; column < h->n_x; column++) {
            double value = h->values[row * h->n_x + column], share = high > low ? (value - low) / (high - low) : 1;
            draw_cell(out, h, row, column, (double[]){left + column * cell, top + row * tall, cell - 1, tall - 1},
                      share, labels ? heat_text(h, value, unit, high, number) : NULL);
        }
    }
    draw_x_names(out, h, left, cell, bottom + 14);
    sl_svg_text(out, (left + width) / 2, bottom + 30, "middle", "lab", h->x_label);
    if (high >= low)
        draw_key(out, h, low, high, left, width, bottom + 42);
    sl_svg_end(out);
}
