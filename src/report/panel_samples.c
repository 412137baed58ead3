/* What the model wrote while it was trained. The texts are anybody's: they are escaped, kept apart from the text around them (their
 * direction may be another), and cut. */
#include <stdio.h>
#include <string.h>

#include "report/panels.h"

enum { MOST_SAMPLES = 12, MOST_TEXT = 2000 };

/* At most so many bytes, and whole characters. */
static void draw_text(sl_text *out, const char *open, const char *text, const char *close)
{
    char part[MOST_TEXT + 1];
    size_t length = strnlen(text, MOST_TEXT);
    const bool cut = text[length] != 0;
    while (cut && length > 0 && ((unsigned char) text[length] & 0xc0) == 0x80)
        length--;
    memcpy(part, text, length);
    part[length] = 0;
    sl_html_in(out, open, part, cut ? "…" : "");
    sl_text_printf(out, "%s", close);
}

void sl_html_sample(sl_text *out, const sl_log_sample *sample)
{
    sl_text_printf(out, "<td class=\"said\" dir=\"auto\">");
    draw_text(out, "<i>", sample->prompt, "</i>");
    draw_text(out, "", sample->text, "");
    if (strcmp(sample->stop, "end") == 0)
        sl_text_printf(out, " <small>(the end)</small>");
    else if (strcmp(sample->stop, "not finite") == 0)
        sl_text_printf(out, " <small>(the weights yield no further token)</small>");
    sl_text_printf(out, "</td>");
}

/* Of many samples some, evenly spaced, with the last one. */
void sl_panel_samples(sl_text *out, const sl_run_log *log)
{
    char title[96], a[32];
    const int64_t n = log->n_samples, shown = SL_MIN(n, (int64_t) MOST_SAMPLES);
    if (n == 0)
        return;
    if (shown < n)
        snprintf(title, sizeof title, "What the model writes: %d of %s samples", MOST_SAMPLES, sl_show((double) n, a));
    else
        snprintf(title, sizeof title, "What the model writes");
    sl_panel_begin(out, "samples", true, title, "The prompt, and how the weights after this step continue it.");
    sl_html_table_begin(out, "#step|text");
    for (int64_t i = 0; i < shown; i++) {
        const sl_log_sample *sample = &log->samples[(i + 1) * n / shown - 1];
        sl_text_printf(out, "<tr><th scope=\"row\" class=\"n\">%lld</th>", (long long) sample->step);
        sl_html_sample(out, sample);
        sl_text_printf(out, "</tr>\n");
    }
    sl_html_table_end(out);
    sl_panel_end(out);
}
