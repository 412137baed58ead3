/*
 * The events of a run. A run that was resumed begins again in the same log with another "run" event: steps behind the checkpoint
 * it went on from are dropped, since they were recomputed; plan, timeline and end are those of the last session.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/stats.h"
#include "report/input_internal.h"
#include "report/scale.h"

const char *const sl_log_stream_names[SL_LOG_STREAMS] = {"compute", "in", "out", "host"};
const char *const sl_log_lane_names[SL_LOG_STREAMS] = {"compute", "copies in", "copies out", "host"};
const char *const sl_log_phase_names[SL_LOG_PHASES] = {"forward", "backward", "recompute", "optimizer", "copy"};
const char *const sl_log_class_names[SL_LOG_CLASSES] = {"parameter", "gradient",  "optimizer", "activation", "context",
                                                        "hidden",    "workspace", "data",      "result"};
const char *const sl_log_tier_names[SL_LOG_TIERS] = {"device", "host"};

static const double longest_ns = 1e17; /* three years */

static int find_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static sl_figures no_figures(void)
{
    sl_figures f;
    f.step_s = f.tokens_per_s = f.tflops = f.mfu = f.hfu = f.in_bytes = f.out_bytes = f.recompute_fraction =
        (double) NAN;
    for (int i = 0; i < SL_LOG_TIERS; i++)
        f.peak_bytes[i] = f.budget_bytes[i] = (double) NAN;
    for (int i = 0; i < SL_LOG_STREAMS; i++)
        f.busy_s[i] = f.wait_s[i] = (double) NAN;
    return f;
}

static sl_status the_log(sl_reading *r, sl_run_log **out)
{
    sl_input *input = r->input;
    if (input->tables)
        return sl_fail(SL_E_FORMAT, "%s:%lld: an event of a run in a file of tables", r->at.path,
                       (long long) r->at.line);
    if (!input->log) {
        SL_TRY(sl_region_alloc(input->region, &input->log, 1, sizeof *input->log));
        input->log->predicted = input->log->measured = no_figures();
    }
    *out = input->log;
    return SL_OK;
}

/* A session that was resumed before its first step has left nothing. */
static sl_status begin_session(sl_reading *r, sl_run_log *log, int64_t first)
{
    while (log->n_sessions > 0 && log->sessions[log->n_sessions - 1].first_step >= first)
        log->n_sessions--;
    SL_TRY(sl_reading_room(&log->sessions, log->n_sessions, &r->session_room, sizeof *log->sessions));
    log->sessions[log->n_sessions++] = (sl_log_session){
        .first_step = first, .budget_bytes = {(double) NAN, (double) NAN}, .predicted_tokens_per_s = (double) NAN};
    return SL_OK;
}

/* Of callbacks and of a share held out there is no summary. */
static sl_status read_data(sl_reading *r, const sl_json *line, const char *key, const char **summary)
{
    const sl_json *data = sl_json_get(line, key);
    return data && data->kind == SL_JSON_OBJECT ? sl_reading_text(r, data, "summary", summary) : SL_OK;
}

static sl_status read_run(sl_reading *r, sl_run_log *log, const sl_json *line)
{
    int64_t first;
    SL_TRY(sl_reading_count(r, line, "first_step", 0, &first));
    while (log->n_steps > 0 && log->steps[log->n_steps - 1].step > first)
        log->n_steps--;
    log->resumed_at = log->n_steps;
    SL_TRY(begin_session(r, log, first));
    while (log->n_validations > 0 && log->validations[log->n_validations - 1].step > first)
        log->n_validations--;
    while (log->n_samples > 0 && log->samples[log->n_samples - 1].step > first)
        log->n_samples--;
    log->n_ops = log->n_actions = log->n_allocations = 0;
    log->measured = no_figures();
    log->reason = NULL;
    const sl_json *options = sl_json_get(line, "options");
    SL_TRY(sl_reading_text(r, line, "model", &log->model));
    if (options && options->kind == SL_JSON_OBJECT) {
        if (!log->model)
            SL_TRY(sl_reading_text(r, options, "model", &log->model));
        SL_TRY(sl_reading_count(r, options, "steps", 0, &log->steps_wanted));
        SL_TRY(sl_reading_number(r, options, "clip", 0, &log->clip));
    }
    SL_TRY(read_data(r, line, "data", &log->data[0]));
    SL_TRY(read_data(r, line, "val_data", &log->data[1]));
    SL_TRY(sl_reading_text(r, line, "time", &log->time));
    SL_TRY(sl_reading_text(r, line, "device", &log->device));
    SL_TRY(sl_reading_text(r, line, "numerics", &log->numerics));
    SL_TRY(sl_reading_text(r, line, "precision", &log->precision));
    SL_TRY(sl_reading_count(r, line, "parameters", 0, &log->parameters));
    SL_TRY(sl_reading_count(r, line, "tokens_per_step", 0, &log->tokens_per_step));
    return sl_reading_count(r, line, "seqlen", 0, &log->seqlen);
}

/* null: not limited. Absent: not known. */
static sl_status read_budget(sl_reading *r, const sl_json *line, const char *key, double *out)
{
    const sl_json *value = sl_json_get(line, key);
    return sl_reading_number(r, line, key, value ? (double) INFINITY : (double) NAN, out);
}

static sl_status read_streams(sl_reading *r, const sl_json *line, const char *key, double out[SL_LOG_STREAMS])
{
    const sl_json *object = sl_json_get(line, key);
    if (!object)
        return SL_OK;
    if (object->kind != SL_JSON_OBJECT)
        return sl_reading_fail(r, object, "\"%s\" must be an object", key);
    for (int i = 0; i < SL_LOG_STREAMS; i++)
        SL_TRY(sl_reading_number(r, object, sl_log_stream_names[i], 0, &out[i]));
    return SL_OK;
}

static sl_status read_figures(sl_reading *r, const sl_json *line, sl_figures *f)
{
    const struct {
        const char *key;
        double *to;
    } plain[] = {{"step_s", &f->step_s},
                 {"tokens_per_s", &f->tokens_per_s},
                 {"tflops", &f->tflops},
                 {"mfu", &f->mfu},
                 {"hfu", &f->hfu},
                 {"device_peak_bytes", &f->peak_bytes[0]},
                 {"host_peak_bytes", &f->peak_bytes[1]},
                 {"h2d_bytes_per_step", &f->in_bytes},
                 {"d2h_bytes_per_step", &f->out_bytes},
                 {"recompute_fraction", &f->recompute_fraction}};
    for (int64_t i = 0; i < SL_COUNT(plain); i++)
        SL_TRY(sl_reading_number(r, line, plain[i].key, (double) NAN, plain[i].to));
    SL_TRY(read_budget(r, line, "device_budget_bytes", &f->budget_bytes[0]));
    SL_TRY(read_budget(r, line, "host_budget_bytes", &f->budget_bytes[1]));
    SL_TRY(read_streams(r, line, "busy_s", f->busy_s));
    return read_streams(r, line, "wait_s", f->wait_s);
}

static sl_status read_plan(sl_reading *r, sl_run_log *log, const sl_json *line)
{
    const sl_json *hardware = sl_json_get(line, "hardware");
    SL_TRY(sl_reading_text(r, line, "costs", &log->costs));
    SL_TRY(sl_reading_text(r, line, "limit", &log->limit));
    if (hardware && hardware->kind == SL_JSON_OBJECT) {
        SL_TRY(sl_reading_text(r, hardware, "name", &log->hardware.name));
        SL_TRY(sl_reading_number(r, hardware, "peak_flops", 0, &log->hardware.peak_flops));
        SL_TRY(sl_reading_number(r, hardware, "memory_bandwidth", 0, &log->hardware.memory_bandwidth));
    }
    SL_TRY(read_figures(r, line, &log->predicted));
    if (log->n_sessions > 0) {
        sl_log_session *s = &log->sessions[log->n_sessions - 1];
        memcpy(s->budget_bytes, log->predicted.budget_bytes, sizeof s->budget_bytes);
        s->predicted_tokens_per_s = log->predicted.tokens_per_s;
    }
    return SL_OK;
}

static sl_status read_step(sl_reading *r, sl_run_log *log, const sl_json *line)
{
    SL_TRY(sl_reading_room(&log->steps, log->n_steps, &r->step_room, sizeof *log->steps));
    sl_log_step *s = &log->steps[log->n_steps];
    SL_TRY(sl_reading_count(r, line, "step", log->n_steps + 1, &s->step));
    SL_TRY(sl_reading_number(r, line, "loss", (double) NAN, &s->loss));
    SL_TRY(sl_reading_number(r, line, "grad_norm", (double) NAN, &s->grad_norm));
    SL_TRY(sl_reading_number(r, line, "learning_rate", (double) NAN, &s->learning_rate));
    SL_TRY(sl_reading_number(r, line, "seconds", (double) NAN, &s->seconds));
    SL_TRY(sl_reading_number(r, line, "data_s", 0, &s->data_s));
    SL_TRY(sl_reading_number(r, line, "tokens_per_s", (double) NAN, &s->tokens_per_s));
    log->n_steps++;
    return SL_OK;
}

static sl_status read_validation(sl_reading *r, sl_run_log *log, const sl_json *line)
{
    SL_TRY(sl_reading_room(&log->validations, log->n_validations, &r->validation_room, sizeof *log->validations));
    sl_log_validation *v = &log->validations[log->n_validations];
    SL_TRY(sl_reading_count(r, line, "step", 0, &v->step));
    SL_TRY(sl_reading_number(r, line, "loss", (double) NAN, &v->loss));
    log->n_validations++;
    return SL_OK;
}

static sl_status read_sample(sl_reading *r, sl_run_log *log, const sl_json *line)
{
    SL_TRY(sl_reading_room(&log->samples, log->n_samples, &r->sample_room, sizeof *log->samples));
    sl_log_sample *s = &log->samples[log->n_samples];
    s->prompt = s->text = s->stop = "";
    SL_TRY(sl_reading_count(r, line, "step", 0, &s->step));
    SL_TRY(sl_reading_text(r, line, "prompt", &s->prompt));
    SL_TRY(sl_reading_text(r, line, "text", &s->text));
    SL_TRY(sl_reading_text(r, line, "stop", &s->stop));
    log->n_samples++;
    return SL_OK;
}

static sl_status read_op(sl_reading *r, sl_run_log *log, const sl_json *value)
{
    const char *stream = NULL;
    if (value->kind != SL_JSON_OBJECT)
        return sl_reading_fail(r, value, "an op must be an object");
    SL_TRY(sl_reading_room(&log->ops, log->n_ops, &r->op_room, sizeof *log->ops));
    sl_log_op *op = &log->ops[log->n_ops];
    op->name = "?";
    SL_TRY(sl_reading_text(r, value, "op", &op->name));
    SL_TRY(sl_reading_text(r, value, "stream", &stream));
    op->stream = stream ? find_name(sl_log_stream_names, SL_LOG_STREAMS, stream) : 0;
    if (op->stream < 0)
        return sl_reading_fail(r, value, "\"%s\" is no stream: compute, in, out or host", stream);
    SL_TRY(sl_reading_count(r, value, "count", 0, &op->count));
    SL_TRY(sl_reading_number(r, value, "predicted_s", 0, &op->predicted_s));
    SL_TRY(sl_reading_number(r, value, "measured_s", 0, &op->measured_s));
    SL_TRY(sl_reading_number(r, value, "recomputed_s", 0, &op->recomputed_s));
    SL_TRY(sl_reading_number(r, value, "flops", 0, &op->flops));
    SL_TRY(sl_reading_number(r, value, "bytes", 0, &op->bytes));
    log->n_ops++;
    return SL_OK;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const sl_log_op *) a)->measured_s, y = ((const sl_log_op *) b)->measured_s;
    return x > y ? -1 : x < y;
}

static sl_status read_end(sl_reading *r, sl_run_log *log, const sl_json *line)
{
    const sl_json *ops = sl_json_get(line, "ops");
    SL_TRY(sl_reading_text(r, line, "reason", &log->reason));
    SL_TRY(read_figures(r, line, &log->measured));
    log->n_ops = 0;
    if (ops && ops->kind != SL_JSON_ARRAY)
        return sl_reading_fail(r, ops, "\"ops\" must be an array");
    for (const sl_json *op = ops ? ops->child : NULL; op; op = op->next)
        SL_TRY(read_op(r, log, op));
    if (log->n_ops)
        qsort(log->ops, (size_t) log->n_ops, sizeof *log->ops, by_time);
    log->op_seconds = 0;
    for (int64_t i = 0; i < log->n_ops; i++)
        log->op_seconds += fmax(log->ops[i].measured_s, 0);
    return SL_OK;
}

/* ---- timelines ---- */

/* A row's elements in order; NULL past the last. */
static const sl_json *take(const sl_json **next)
{
    const sl_json *value = *next;
    if (value)
        *next = value->next;
    return value;
}

static sl_status take_name(sl_reading *r, const sl_json *row, const sl_json **next, const char *const *names, int count,
                           uint8_t *out)
{
    const sl_json *value = take(next);
    int at = value && value->kind == SL_JSON_STRING ? find_name(names, count, value->string) : -1;
    if (at < 0)
        return sl_reading_fail(r, value ? value : row, "this must be one of the names from \"%s\" to \"%s\"", names[0],
                               names[count - 1]);
    *out = (uint8_t) at;
    return SL_OK;
}

static sl_status take_text(sl_reading *r, const sl_json *row, const sl_json **next, const char **out)
{
    const sl_json *value = take(next);
    if (!value || value->kind != SL_JSON_STRING)
        return sl_reading_fail(r, value ? value : row, "this must be a text");
    return sl_reading_keep(r, value->string, out);
}

static sl_status take_count(sl_reading *r, const sl_json *row, const sl_json **next, int64_t *out)
{
    const sl_json *value = take(next);
    if (!value || value->kind != SL_JSON_NUMBER || !value->is_integer)
        return sl_reading_fail(r, value ? value : row, "this must be a whole number");
    *out = value->integer;
    return SL_OK;
}

static sl_status take_span(sl_reading *r, const sl_json *row, const sl_json **next, sl_log_span *out)
{
    const sl_json *at = *next;
    SL_TRY(take_count(r, row, next, &out->start));
    SL_TRY(take_count(r, row, next, &out->end));
    if (out->start < 0 || out->end < out->start || (double) out->end > longest_ns)
        return sl_reading_fail(r, at, "a span of nanoseconds must not begin before 0, nor end before it begins");
    return SL_OK;
}

static sl_status read_action(sl_reading *r, sl_run_log *log, const sl_json *row)
{
    SL_TRY(sl_reading_room(&log->actions, log->n_actions, &r->action_room, sizeof *log->actions));
    sl_log_action *a = &log->actions[log->n_actions];
    const sl_json *next = row->child;
    SL_TRY(take_name(r, row, &next, sl_log_stream_names, SL_LOG_STREAMS, &a->stream));
    SL_TRY(take_text(r, row, &next, &a->op));
    SL_TRY(take_text(r, row, &next, &a->name));
    SL_TRY(take_name(r, row, &next, sl_log_phase_names, SL_LOG_PHASES, &a->phase));
    SL_TRY(take_count(r, row, &next, &a->chunk));
    SL_TRY(take_span(r, row, &next, &a->predicted));
    SL_TRY(take_span(r, row, &next, &a->measured));
    SL_TRY(take_count(r, row, &next, &a->bytes));
    log->n_actions++;
    return SL_OK;
}

static sl_status read_place(sl_reading *r, sl_run_log *log, const sl_json *row)
{
    SL_TRY(sl_reading_room(&log->places, log->n_allocations, &r->place_room, sizeof *log->places));
    sl_log_place *p = &log->places[log->n_allocations];
    const sl_json *next = row->child;
    SL_TRY(take_name(r, row, &next, sl_log_tier_names, SL_LOG_TIERS, &p->tier));
    SL_TRY(take_name(r, row, &next, sl_log_class_names, SL_LOG_CLASSES, &p->class));
    SL_TRY(take_count(r, row, &next, &p->bytes));
    SL_TRY(take_count(r, row, &next, &p->first));
    SL_TRY(take_count(r, row, &next, &p->last));
    if (p->bytes < 0 || (double) p->bytes > 1e18)
        return sl_reading_fail(r, row, "%lld bytes cannot be", (long long) p->bytes);
    log->n_allocations++;
    return SL_OK;
}

/* A line holds rows `first`... of `count`; the one that begins with 0 begins a new list. */
static sl_status read_rows(sl_reading *r, sl_run_log *log, const sl_json *line, int64_t *count,
                           sl_status (*read)(sl_reading *, sl_run_log *, const sl_json *))
{
    const sl_json *rows = sl_json_get(line, "rows");
    int64_t first;
    SL_TRY(sl_reading_count(r, line, "first", 0, &first));
    if (first == 0)
        *count = 0;
    if (first != *count)
        return sl_reading_fail(r, line, "row %lld is followed by row %lld: lines are missing in between",
                               (long long) *count, (long long) first);
    if (!rows || rows->kind != SL_JSON_ARRAY)
        return sl_reading_fail(r, rows ? rows : line, "\"rows\" must be an array");
    for (const sl_json *row = rows->child; row; row = row->next) {
        if (row->kind != SL_JSON_ARRAY)
            return sl_reading_fail(r, row, "a row must be an array");
        SL_TRY(read(r, log, row));
    }
    return SL_OK;
}

sl_status sl_reading_event(sl_reading *r, const char *event, const sl_json *line)
{
    sl_run_log *log = NULL;
    SL_TRY(the_log(r, &log));
    if (strcmp(event, "run") == 0)
        return read_run(r, log, line);
    if (strcmp(event, "plan") == 0)
        return read_plan(r, log, line);
    if (strcmp(event, "step") == 0)
        return read_step(r, log, line);
    if (strcmp(event, "validation") == 0)
        return read_validation(r, log, line);
    if (strcmp(event, "sample") == 0)
        return read_sample(r, log, line);
    if (strcmp(event, "end") == 0)
        return read_end(r, log, line);
    if (strcmp(event, "timeline") == 0) {
        SL_TRY(sl_reading_count(r, line, "step", 0, &log->timeline_step));
        return read_rows(r, log, line, &log->n_actions, read_action);
    }
    if (strcmp(event, "places") == 0)
        return read_rows(r, log, line, &log->n_allocations, read_place);
    if (strcmp(event, "checkpoint") == 0) {
        double seconds;
        SL_TRY(sl_reading_number(r, line, "seconds", 0, &seconds));
        log->checkpoint_s += seconds;
        log->n_checkpoints++;
    }
    return SL_OK;
}

double sl_log_median_step(const sl_run_log *log)
{
    double *seconds;
    int64_t n = 0;
    if (log->n_steps == 0 || sl_alloc(&seconds, log->n_steps, sizeof *seconds) != SL_OK)
        return (double) NAN;
    int64_t first = log->resumed_at < log->n_steps ? log->resumed_at : 0;
    for (int64_t i = first + (log->n_steps - first > 1); i < log->n_steps; i++)
        if (isfinite(log->steps[i].seconds))
            seconds[n++] = log->steps[i].seconds;
    double median = sl_median(seconds, n);
    sl_free(seconds);
    return median;
}
