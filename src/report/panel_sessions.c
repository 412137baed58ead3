/* A run that was resumed: its sessions, and where a budget changed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/stats.h"
#include "report/panels.h"
#include "report/sessions.h"

static bool same_budget(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

bool sl_session_changed(const sl_run_log *log, int64_t i)
{
    const sl_log_session *s = &log->sessions[i];
    return i > 0 && !(same_budget(s->budget_bytes[0], s[-1].budget_bytes[0]) &&
                      same_budget(s->budget_bytes[1], s[-1].budget_bytes[1]));
}

static const char *short_budget(double bytes, char out[32])
{
    return isinf(bytes) ? "no limit" : isnan(bytes) ? "?" : sl_show_as(bytes, SL_BYTES, out);
}

/* What changed: the device budget, the host's, or both. */
void sl_session_marks_of(const sl_run_log *log, sl_session_marks *m)
{
    char text[32];
    m->n = 0;
    for (int64_t i = 1; i < log->n_sessions && m->n < SL_MOST_SESSION_MARKS; i++) {
        const sl_log_session *s = &log->sessions[i];
        if (!sl_session_changed(log, i))
            continue;
        bool device = !same_budget(s->budget_bytes[0], s[-1].budget_bytes[0]);
        snprintf(m->texts[m->n], sizeof m->texts[0], "%s %s", device ? "device" : "host",
                 short_budget(s->budget_bytes[!device], text));
        m->marks[m->n] = (sl_event_mark){(double) s->first_step + 0.5, m->texts[m->n]};
        m->n++;
    }
}

int64_t sl_session_last_step(const sl_run_log *log, int64_t session)
{
    return session + 1 < log->n_sessions ? log->sessions[session + 1].first_step : log->steps[log->n_steps - 1].step;
}

double sl_session_speed(const sl_run_log *log, int64_t session)
{
    int64_t n = 0, first = log->sessions[session].first_step, last = sl_session_last_step(log, session);
    double *speeds;
    if (sl_alloc(&speeds, log->n_steps, sizeof *speeds) != SL_OK)
        return (double) NAN;
    for (int64_t i = 0; i < log->n_steps; i++) {
        const sl_log_step *s = &log->steps[i];
        bool counts = s->step <= last && (s->step > first + 1 || (s->step == first + 1 && last == first + 1));
        if (counts && isfinite(s->tokens_per_s))
            speeds[n++] = s->tokens_per_s;
    }
    double median = sl_median(speeds, n);
    sl_free(speeds);
    return median;
}

/* One row for each session, so that every change of a budget can be looked up. */
void sl_panel_sessions(sl_text *out, const sl_run_log *log)
{
    char a[32], b[32], title[96];
    int64_t changes = 0;
    if (log->n_sessions < 2 || log->n_steps == 0)
        return;
    for (int64_t i = 1; i < log->n_sessions; i++)
        changes += sl_session_changed(log, i);
    snprintf(title, sizeof title, "%s resume%s, %s with another budget", sl_show((double) log->n_sessions - 1, a),
             log->n_sessions == 2 ? "" : "s", changes ? sl_show((double) changes, b) : "none");
    sl_panel_begin(out, "sessions", true, title,
                   "The weights do not depend on the budgets. Charts mark where a budget changed.");
    sl_html_table_begin(out, "steps|#device budget|#host budget|#+predicted tokens/s|#tokens/s");
    for (int64_t i = 0; i < log->n_sessions; i++) {
        const sl_log_session *s = &log->sessions[i];
        sl_text_printf(out, "<tr><th scope=\"row\">%lld to %lld</th>", (long long) s->first_step + 1,
                       (long long) sl_session_last_step(log, i));
        for (int tier = 0; tier < SL_LOG_TIERS; tier++) {
            bool changed = i > 0 && !same_budget(s->budget_bytes[tier], s[-1].budget_bytes[tier]);
            sl_text_printf(out, changed ? "<td class=\"n\"><b>%s</b></td>" : "<td class=\"n\">%s</td>",
                           isnan(s->budget_bytes[tier]) ? "not logged" : sl_show_budget(s->budget_bytes[tier], a));
        }
        sl_text_printf(out, "<td class=\"n extra\">%s</td><td class=\"n\">%s</td></tr>\n",
                       sl_show(s->predicted_tokens_per_s, a), sl_show(sl_session_speed(log, i), b));
    }
    sl_html_table_end(out);
    sl_panel_end(out);
}
