/*
 * The trace event format that Perfetto and chrome://tracing read: a process for what was measured and one for what was predicted,
 * a thread for each stream, complete events ("X") with times in microseconds, and counters ("C") for the memory by class. Times
 * keep all three digits of their nanoseconds, so sums over the trace equal sums over the log.
 */
#include <inttypes.h>
#include <math.h>

#include "core/json.h"
#include "report/panels.h"
#include "report/report.h"

enum { MEASURED = 1, PREDICTED = 2, MOMENTS = 400 };

static void put_us(sl_text *out, const char *key, int64_t ns)
{
    sl_text_printf(out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int) (ns % 1000));
}

static void put_name(sl_text *out, const char *what, int process, int thread, const char *name)
{
    sl_text_printf(out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n", what,
                   process, thread, name);
    if (thread)
        sl_text_printf(
            out, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}},\n",
            process, thread, thread);
}

static void put_names(sl_text *out, const sl_run_log *log)
{
    for (int process = MEASURED; process <= PREDICTED; process++) {
        put_name(out, "process_name", process, 0, process == MEASURED ? "measured" : "predicted");
        for (int s = 0; s < SL_LOG_STREAMS; s++)
            for (int64_t i = 0; i < log->n_actions; i++)
                if (log->actions[i].stream == s) {
                    put_name(out, "thread_name", process, s + 1, sl_log_lane_names[s]);
                    break;
                }
    }
}

static void put_string(sl_json_writer *w, sl_text *out, const char *key, const char *text)
{
    w->text.length = 0;
    w->need_comma = false;
    sl_json_put_string(w, NULL, text);
    sl_text_printf(out, "\"%s\":%s", key, w->text.failed ? "\"\"" : w->text.data);
}

static void put_action(sl_text *out, sl_json_writer *w, const sl_log_action *a, int process)
{
    const sl_log_span *span = process == MEASURED ? &a->measured : &a->predicted;
    sl_text_printf(out, "{\"ph\":\"X\",");
    put_string(w, out, "name", a->name);
    sl_text_printf(out, ",");
    put_string(w, out, "cat", a->op);
    sl_text_printf(out, ",\"pid\":%d,\"tid\":%d", process, a->stream + 1);
    put_us(out, "ts", span->start);
    put_us(out, "dur", span->end - span->start);
    sl_text_printf(out, ",\"args\":{\"phase\":\"%s\"", sl_log_phase_names[a->phase]);
    if (a->chunk >= 0)
        sl_text_printf(out, ",\"chunk\":%" PRId64, a->chunk);
    if (a->bytes > 0)
        sl_text_printf(out, ",\"bytes\":%" PRId64, a->bytes);
    sl_text_printf(out, "}},\n");
}

static sl_status put_memory(sl_text *out, const sl_run_log *log, int tier)
{
    sl_memory *moments;
    double peak;
    bool there;
    SL_TRY(sl_alloc(&moments, MOMENTS, sizeof *moments));
    sl_status status = sl_memory_over_time(log, tier, MOMENTS, moments, &peak, &there);
    int64_t end = sl_log_end_ns(log, false);
    for (int m = 0; m < MOMENTS && status == SL_OK && there; m++) {
        sl_text_printf(out, "{\"ph\":\"C\",\"name\":\"%s memory\",\"pid\":%d", sl_log_tier_names[tier], MEASURED);
        put_us(out, "ts", end / MOMENTS * m);
        sl_text_printf(out, ",\"args\":{");
        for (int c = 0; c < SL_LOG_CLASSES; c++)
            sl_text_printf(out, "%s\"%s\":%.0f", c ? "," : "", sl_log_class_names[c], fmax(moments[m].bytes[c], 0));
        sl_text_printf(out, "}},\n");
    }
    sl_free(moments);
    return status;
}

sl_status sl_report_trace(sl_text *out, const sl_input *input)
{
    const sl_run_log *log = input->log;
    sl_json_writer w = {0};
    if (!log || log->n_actions == 0)
        return sl_fail(SL_E_USAGE,
                       "%s has no timeline for --trace: it is in the log of a run with --out, from its second step on",
                       input->path);
    sl_text_printf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    put_names(out, log);
    for (int tier = 0; tier < SL_LOG_TIERS; tier++)
        SL_TRY(put_memory(out, log, tier));
    for (int process = MEASURED; process <= PREDICTED; process++)
        for (int64_t i = 0; i < log->n_actions; i++)
            put_action(out, &w, &log->actions[i], process);
    sl_text_free(&w.text);
    /* The list needs an end without a comma. */
    sl_text_printf(
        out, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_index\":1}}\n]}\n",
        MEASURED);
    return sl_text_status(out);
}
