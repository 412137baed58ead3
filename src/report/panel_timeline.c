/*
 * The step as lanes, one for each stream, prediction above measurement on one time axis. A few hundred actions are drawn one by
 * one, with their names as tool tips. Of many, a lane is cut into columns of about a pixel: a column takes the colour of the phase
 * it spent most time in and is the paler the less of it was busy; columns that look the same become one bar.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/panels.h"
#include "report/report.h"

enum {
    DRAWN_ONE_BY_ONE = 1200,
    LANE = 20,
    GAP = 4,
    HEAD = 20,
    SIDE_GAP = 14,
    MOST_COLUMNS = 1200,
    LEVELS = 4,
    PIECE = 150
};

static const char *const phase_colors[SL_LOG_PHASES] = {"p-forward", "p-backward", "p-recompute", "p-optimizer",
                                                        "p-copy"};

static const sl_log_span *span_of(const sl_log_action *a, bool predicted)
{
    return predicted ? &a->predicted : &a->measured;
}

int64_t sl_report_busy_ns(const sl_run_log *log, int stream, bool predicted)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < log->n_actions; i++) {
        const sl_log_action *a = &log->actions[i];
        const sl_log_span *span = span_of(a, predicted);
        if (a->stream == stream)
            sum += span->end - span->start;
    }
    return sum;
}

typedef struct timeline {
    const sl_run_log *log;
    int64_t end[2];  /* measured, predicted */
    double piece[2]; /* from, to: ns */
    bool lane[SL_LOG_STREAMS];
} timeline;

static const char *color_of(const sl_log_action *a)
{
    static const char *const copies[SL_LOG_STREAMS] = {"p-copy", "p-in", "p-out", "p-copy"};
    return a->phase == 4 ? copies[a->stream] : phase_colors[a->phase];
}

static void draw_one_by_one(sl_text *out, const timeline *t, int stream, bool predicted, const sl_scale *x, double y)
{
    char seconds[32];
    for (int64_t i = 0; i < t->log->n_actions; i++) {
        const sl_log_action *a = &t->log->actions[i];
        const sl_log_span *span = span_of(a, predicted);
        if (a->stream != stream || span->end == span->start || (double) span->end < x->low ||
            (double) span->start > x->high)
            continue;
        double from = sl_scale_at(x, (double) span->start), to = sl_scale_at(x, (double) span->end);
        sl_text_printf(out, "<rect class=\"f %s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\"><title>",
                       color_of(a), from, y, fmax(to - from, 0.4), LANE);
        sl_html(out, a->op);
        sl_text_printf(out, " ");
        sl_html(out, a->name);
        sl_text_printf(out, ", %s", sl_show_as(1e-9 * (double) (span->end - span->start), SL_SECONDS, seconds));
        sl_text_printf(out, "</title></rect>");
    }
}

typedef struct column {
    double busy[SL_LOG_PHASES + 1]; /* the last: copies out, which have their own colour */
} column;

static void add_span(column *columns, int n, double from, double to, int phase)
{
    from = fmin(fmax(from, 0), n);
    to = fmin(fmax(to, 0), n);
    for (int c = (int) from; c < n && c < to; c++)
        columns[c].busy[phase] += fmin(to, c + 1) - fmax(from, c);
}

/* The phase with most of the column, and how full that is in LEVELS parts; 0 is empty. */
static int look_of(const column *c)
{
    int most = 0;
    double sum = 0;
    for (int p = 0; p <= SL_LOG_PHASES; p++) {
        sum += c->busy[p];
        most = c->busy[p] > c->busy[most] ? p : most;
    }
    int level = sum < 0.02 ? 0 : (int) ceil(fmin(sum, 1) * LEVELS - 0.05);
    return level <= 0 ? 0 : most * (LEVELS + 1) + level;
}

static void draw_columns(sl_text *out, const timeline *t, int stream, bool predicted, const sl_scale *x, double y)
{
    column columns[MOST_COLUMNS];
    int n = (int) fmin(x->to - x->from, MOST_COLUMNS);
    double share = n / x->high;
    memset(columns, 0, sizeof columns);
    for (int64_t i = 0; i < t->log->n_actions; i++) {
        const sl_log_action *a = &t->log->actions[i];
        const sl_log_span *span = span_of(a, predicted);
        if (a->stream == stream)
            add_span(columns, n, (double) span->start * share, (double) span->end * share,
                     a->phase == 4 && stream == 2 ? SL_LOG_PHASES : a->phase);
    }
    for (int from = 0, c = 1; c <= n; c++) {
        int look = look_of(&columns[from]);
        if (c < n && look_of(&columns[c]) == look)
            continue;
        int phase = look / (LEVELS + 1), level = look % (LEVELS + 1);
        if (look)
            sl_text_printf(out, "<rect class=\"f %s\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"%s/>",
                           phase == SL_LOG_PHASES      ? "p-out"
                           : phase == 4 && stream == 1 ? "p-in"
                                                       : phase_colors[phase],
                           x->from + from * (x->to - x->from) / n, y, (c - from) * (x->to - x->from) / n, LANE,
                           level == LEVELS ? ""
                           : level == 3    ? " opacity=\".7\""
                           : level == 2    ? " opacity=\".45\""
                                           : " opacity=\".25\"");
        from = c;
    }
}

/* Numbers below the lanes, from where these begin: of a piece late in a step, times since the step began would differ only in
 * their last digits. */
static void draw_ticks(sl_text *out, const sl_scale *x, double y, double width)
{
    const char *unit;
    double length = 1e-9 * (x->high - x->low), factor = sl_axis_unit(length, SL_SECONDS, &unit), ticks[SL_MOST_TICKS];
    char text[96], start[32];
    int n = sl_ticks(0, length * factor, false, width > 400 ? 10 : 5, ticks);
    for (int i = 0; i < n; i++) {
        double at = sl_scale_at(x, x->low + ticks[i] / factor * 1e9);
        sl_text_printf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\"/>", at, y, at, y + 4);
        sl_svg_text(out, at, y + 17, "middle", "num", sl_show_short(ticks[i], text));
    }
    if (x->low > 0)
        snprintf(text, sizeof text, "time after %s of the step (%s)", sl_show_as(1e-9 * x->low, SL_SECONDS, start),
                 unit);
    else
        snprintf(text, sizeof text, "time in the step (%s)", unit);
    sl_svg_text(out, (x->from + x->to) / 2, y + 33, "middle", "lab", text);
}

/* A heading and the lanes of one side, with their busy shares if `shares`. Returns where the next begins. */
static double draw_side(sl_text *out, const timeline *t, const char *heading, bool predicted, bool shares,
                        const sl_scale *x, double y, double width)
{
    char share[32];
    sl_svg_text(out, 0, y + 12, "start", "lab strong", heading);
    y += HEAD;
    for (int s = 0; s < SL_LOG_STREAMS; s++) {
        if (!t->lane[s])
            continue;
        sl_svg_text(out, x->from - 8, y + 14, "end", "lab", sl_log_lane_names[s]);
        sl_text_printf(out, "<rect class=\"lane\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/>", x->from, y,
                       x->to - x->from, LANE);
        if (!shares || t->log->n_actions <= DRAWN_ONE_BY_ONE)
            draw_one_by_one(out, t, s, predicted, x, y);
        else
            draw_columns(out, t, s, predicted, x, y);
        double busy = (double) sl_report_busy_ns(t->log, s, predicted) / fmax((double) t->end[predicted], 1);
        snprintf(share, sizeof share, busy < 0.0995 && busy > 0 ? "%.1f %%" : "%.0f %%", 100 * fmin(busy, 99));
        if (shares)
            sl_svg_text(out, width, y + 14, "end", "num", share);
        y += LANE + GAP;
    }
    return y;
}

static double height_of(const timeline *t, int sides)
{
    int lanes = 0;
    for (int s = 0; s < SL_LOG_STREAMS; s++)
        lanes += t->lane[s];
    return sides * (HEAD + lanes * (LANE + GAP)) + SIDE_GAP * (sides - 1) + 38;
}

static void draw_timeline(sl_text *out, const void *what, double width)
{
    const timeline *t = what;
    sl_scale x = {0, (double) SL_MAX(SL_MAX(t->end[0], t->end[1]), 1), 74, width - 42, false};
    sl_svg_begin(out, width, height_of(t, 2), "Timeline of a step: what each stream did, predicted and measured");
    double y = 0;
    for (int predicted = 1; predicted >= 0; predicted--) {
        char heading[96], seconds[32];
        snprintf(heading, sizeof heading, "%s: %s", predicted ? "predicted" : "measured",
                 sl_show_as(1e-9 * (double) t->end[predicted], SL_SECONDS, seconds));
        y = draw_side(out, t, heading, predicted, true, &x, y + (predicted ? 0 : SIDE_GAP), width);
    }
    draw_ticks(out, &x, y, width);
    sl_svg_end(out);
}

/* A piece from the middle of a step that has too many actions to see one: as measured, action by action. */
static void draw_piece(sl_text *out, const void *what, double width)
{
    const timeline *t = what;
    sl_scale x = {t->piece[0], t->piece[1], 74, width - 42, false};
    char text[96], seconds[32];
    snprintf(text, sizeof text, "measured, %s of it enlarged",
             sl_show_as(1e-9 * (x.high - x.low), SL_SECONDS, seconds));
    sl_svg_begin(out, width, height_of(t, 1), "A piece of the step, enlarged");
    double y = draw_side(out, t, text, false, false, &x, 0, width);
    draw_ticks(out, &x, y, width);
    sl_svg_end(out);
}

/* From the action in the middle of the list to the one PIECE actions later. */
static bool find_piece(timeline *t)
{
    const sl_run_log *log = t->log;
    int64_t first = log->n_actions / 2, last = SL_MIN(first + PIECE, log->n_actions - 1);
    t->piece[0] = (double) log->actions[first].measured.start;
    t->piece[1] = (double) log->actions[last].measured.end;
    return log->n_actions > DRAWN_ONE_BY_ONE && t->piece[1] > t->piece[0];
}

void sl_panel_timeline(sl_text *out, const sl_run_log *log)
{
    timeline t = {.log = log, .end = {sl_log_end_ns(log, false), sl_log_end_ns(log, true)}};
    bool phases[SL_LOG_PHASES] = {false};
    char title[128], sub[256], share[32];
    if (log->n_actions == 0)
        return;
    for (int64_t i = 0; i < log->n_actions; i++) {
        t.lane[log->actions[i].stream] = true;
        phases[log->actions[i].phase] = true;
    }
    double busy = (double) sl_report_busy_ns(log, 0, false) / fmax((double) t.end[0], 1);
    snprintf(title, sizeof title, "The compute stream was busy %s of the step",
             sl_show_as(fmin(busy, 99), SL_SHARE, share));
    snprintf(sub, sizeof sub,
             "Step %lld, stream by stream: what the plan predicted above what happened. At the right, the busy share "
             "of each. "
             "Gaps in the compute lane are waits.",
             (long long) log->timeline_step);
    sl_panel_begin(out, "timeline", true, title, sub);
    sl_legend_begin(out);
    for (int p = 0; p < 4; p++)
        if (phases[p])
            sl_legend_item(out, phase_colors[p], sl_log_phase_names[p]);
    if (t.lane[1])
        sl_legend_item(out, "p-in", "copies to the device");
    if (t.lane[2])
        sl_legend_item(out, "p-out", "copies from the device");
    sl_legend_end(out);
    sl_draw_twice(out, draw_timeline, &t, SL_FULL);
    if (find_piece(&t))
        sl_draw_twice(out, draw_piece, &t, SL_FULL);
    sl_panel_end(out);
}
