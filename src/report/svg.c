/* The pieces that all drawings share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/chart.h"

void sl_html(sl_text *out, const char *text)
{
    const char *from = text;
    for (const char *at = text;; at++) {
        unsigned char c = (unsigned char) *at;
        const char *safe = c == '<'                                       ? "&lt;"
                           : c == '>'                                     ? "&gt;"
                           : c == '&'                                     ? "&amp;"
                           : c == '"'                                     ? "&quot;"
                           : c == '\''                                    ? "&#39;"
                           : c < 0x20 && c != '\n' && c != '\t' && c != 0 ? "\xef\xbf\xbd"
                           : c == 0x7f                                    ? "\xef\xbf\xbd"
                                                                          : NULL;
        if (c && !safe)
            continue;
        sl_text_append(out, from, (size_t) (at - from));
        if (!c)
            return;
        sl_text_append(out, safe, strlen(safe));
        from = at + 1;
    }
}

void sl_html_in(sl_text *out, const char *open, const char *text, const char *close)
{
    sl_text_append(out, open, strlen(open));
    sl_html(out, text);
    sl_text_append(out, close, strlen(close));
}

void sl_draw_twice(sl_text *out, sl_draw_fn draw, const void *what, double wide)
{
    sl_text_printf(out, "<div class=\"wide\">");
    draw(out, what, wide);
    sl_text_printf(out, "</div><div class=\"narrow\">");
    draw(out, what, SL_NARROW);
    sl_text_printf(out, "</div>\n");
}

void sl_svg_begin(sl_text *out, double width, double height, const char *name)
{
    sl_text_printf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", width, height);
    sl_html(out, name);
    sl_text_printf(out, "\">");
}

void sl_svg_end(sl_text *out)
{
    sl_text_printf(out, "</svg>");
}

void sl_svg_text(sl_text *out, double x, double y, const char *anchor, const char *class, const char *text)
{
    sl_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, class);
    sl_html(out, text);
    sl_text_printf(out, "</text>");
}

/* By classes of letters in the widest of the fonts that systems come with: too much room is better than too little. */
double sl_text_width(const char *text, double size)
{
    double width = 0;
    for (; *text; text++) {
        unsigned char c = (unsigned char) *text;
        if ((c & 0xc0) == 0x80) /* the rest of a code point */
            continue;
        width += strchr("ijl.,:;'|! ", c)            ? 0.34
                 : strchr("frt()[]/-\\\"I", c)       ? 0.42
                 : strchr("mwMW%@", c)               ? 0.96
                 : (c >= 'A' && c <= 'Z') || c > 127 ? 0.74
                                                     : 0.63;
    }
    return width * size;
}

void sl_legend_begin(sl_text *out)
{
    sl_text_printf(out, "<ul class=\"legend\">");
}

void sl_legend_item(sl_text *out, const char *color, const char *name)
{
    sl_text_printf(out, "<li><i class=\"swatch %s\"></i>", color);
    sl_html(out, name);
    sl_text_printf(out, "</li>");
}

void sl_legend_line(sl_text *out, const sl_series *series)
{
    sl_text_printf(out,
                   "<li><svg class=\"key\" viewBox=\"0 0 30 10\"><path class=\"l %s d%d%s\" d=\"M0 5L30 5\"/></svg>",
                   series->color, series->dash, series->style == SL_FAINT ? " faint" : "");
    if (series->mark) {
        sl_html_in(out, "<b>", series->mark, "</b> ");
    }
    sl_html_in(out, "<span>", series->name, "</span></li>");
}

void sl_legend_event(sl_text *out, const char *name)
{
    sl_text_printf(out,
                   "<li><svg class=\"key\" viewBox=\"0 0 30 15\"><line class=\"event\" x1=\"15\" y1=\"0\" x2=\"15\" "
                   "y2=\"15\"/></svg><span>");
    sl_html(out, name);
    sl_text_printf(out, "</span></li>");
}

void sl_legend_end(sl_text *out)
{
    sl_text_printf(out, "</ul>\n");
}
