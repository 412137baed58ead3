/* Where the time of the last step went, op by op, and how near each op came to what the machine can do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"
#include "report/panels.h"

/* An op that this build does not know gets the commonest category. */
const char *sl_op_category(const char *op)
{
    const sl_op_def *def = sl_op_find(op);
    if (strncmp(op, "copy", 4) == 0)
        return "copy";
    return sl_category_name(def ? def->category : SL_CAT_ELEMENTWISE);
}

const char *sl_category_color(const char *category)
{
    return strcmp(category, sl_category_name(SL_CAT_DOT_PRODUCT)) == 0 ? "g-product"
           : strcmp(category, sl_category_name(SL_CAT_ATTENTION)) == 0 ? "g-product"
           : strcmp(category, sl_category_name(SL_CAT_REDUCTION)) == 0 ? "g-reduction"
           : strcmp(category, "copy") == 0                             ? "g-copy"
                                                                       : "g-elementwise";
}

static void draw_row(sl_text *out, const sl_run_log *log, const sl_log_op *op)
{
    char text[32];
    double all = log->op_seconds;
    const char *category = sl_op_category(op->name);
    double share = all > 0 ? fmax(op->measured_s, 0) / all : 0, seconds = op->measured_s;
    bool work = op->stream == 0 || op->stream == 3;
    sl_text_printf(out, "<tr><th scope=\"row\">");
    sl_html(out, op->name);
    sl_text_printf(out, "%s</th>", op->stream == 3 ? " <small>host</small>" : "");
    sl_html_cell(out, "extra", category);
    sl_html_cell(out, "n extra", sl_show((double) op->count, text));
    sl_html_cell(out, "n", sl_show_as(seconds, SL_SECONDS, text));
    sl_text_printf(out,
                   "<td class=\"n\"><span class=\"meter\"><i class=\"%s\" style=\"width:%.1f%%\"></i></span> %s</td>",
                   sl_category_color(category), 100 * share, sl_show_as(share, SL_SHARE, text));
    sl_html_cell(out, "n extra",
                 sl_show_as(op->count > 0 ? seconds / (double) op->count : (double) NAN, SL_SECONDS, text));
    sl_html_cell(out, "n", sl_show_as(op->predicted_s, SL_SECONDS, text));
    sl_html_cell(out, "n extra",
                 work && op->flops > 0 && seconds > 0 ? sl_show(1e-9 * op->flops / seconds, text) : "–");
    sl_html_cell(out, "n extra", op->bytes > 0 && seconds > 0 ? sl_show(1e-9 * op->bytes / seconds, text) : "–");
    sl_html_cell(out, "n extra", work && op->flops > 0 && op->bytes > 0 ? sl_show(op->flops / op->bytes, text) : "–");
    sl_text_printf(out, "<td class=\"extra\">%s</td></tr>\n",
                   !work                                                  ? "link"
                   : log->hardware.memory_bandwidth <= 0                  ? "–"
                   : sl_below_ridge(&log->hardware, op->flops, op->bytes) ? "memory"
                                                                          : "compute");
}

static void draw_table(sl_text *out, const sl_run_log *log)
{
    sl_html_table_begin(out,
                        "op|+category|#+calls|#time|#share|#+per call|#predicted|#+GFLOP/s|#+GB/s|#+FLOP/B|+bound by");
    for (int64_t i = 0; i < log->n_ops; i++)
        draw_row(out, log, &log->ops[i]);
    sl_html_table_end(out);
}

/* The share of the roof above its own intensity that an op reaches. */
static double of_roof(const sl_log_hardware *hw, const sl_roof_point *p)
{
    return p->y / fmin(hw->peak_flops, p->x * hw->memory_bandwidth);
}

static void draw_roofline(sl_text *out, const sl_run_log *log)
{
    const sl_log_hardware *hw = &log->hardware;
    sl_roof_point *points;
    int n = 0, silent = 0;
    char title[160], sub[384], peak[64], band[64], share[32], left[96] = "";
    if (sl_alloc(&points, log->n_ops, sizeof *points) != SL_OK) {
        out->failed = true;
        return;
    }
    for (int64_t i = 0; i < log->n_ops && n < 64; i++) {
        const sl_log_op *op = &log->ops[i];
        silent += op->stream == 0 && !(op->flops > 0);
        if (op->stream == 0 && op->flops > 0 && op->bytes > 0 && op->measured_s > 0)
            points[n++] = (sl_roof_point){op->name, sl_category_color(sl_op_category(op->name)), op->flops / op->bytes,
                                          op->flops / op->measured_s, op->measured_s};
    }
    if (n > 0 && hw->peak_flops > 0 && hw->memory_bandwidth > 0) {
        if (silent)
            snprintf(left, sizeof left, " %d ops that only move bytes have no arithmetic to place.", silent);
        snprintf(title, sizeof title, "Roofline: %.40s reaches %s of what its intensity allows", points[0].name,
                 sl_show_as(of_roof(hw, &points[0]), SL_SHARE, share));
        snprintf(sub, sizeof sub, "Each circle is an op, as large as its time. The roof is %s and %s%s%.60s.%s",
                 sl_show_rate(hw->peak_flops, "FLOP/s", peak), sl_show_rate(hw->memory_bandwidth, "B/s", band),
                 hw->name ? ": " : "", hw->name ? hw->name : "", left);
        sl_panel_roof(out, "roofline", sub, &(sl_roof){title, hw->peak_flops, hw->memory_bandwidth, points, n});
    }
    sl_free(points);
}

void sl_panel_ops(sl_text *out, const sl_run_log *log)
{
    char title[160], share[32];
    if (log->n_ops == 0)
        return;
    draw_roofline(out, log);
    snprintf(title, sizeof title, "%.40s takes %s of all busy time", log->ops[0].name,
             sl_show_as(log->op_seconds > 0 ? log->ops[0].measured_s / log->op_seconds : 0, SL_SHARE, share));
    sl_panel_begin(
        out, "ops", true, title,
        "The last step, op by op. Shares are of the busy time of all streams and add up to 100 %; copies run beside "
        "arithmetic, so they cost nothing while they are hidden.");
    draw_table(out, log);
    sl_panel_end(out);
}
