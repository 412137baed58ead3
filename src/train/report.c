/* What a run tells: its events, the view behind the progress line, and the object of `--json`. Prediction and measurement are
 * the same struct; only where the numbers come from differs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory_limit.h"
#include "train/run.h"
#include "train/summary.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

/* Of all steps but the first, which pays for page faults and cold caches; of the first when there is no other. */
double sl_run_median(const sl_trainer *t)
{
    int64_t n = SL_MIN(t->n_times, (int64_t) SL_TIMES_KEPT);
    if (n == 0)
        return t->first_time;
    memcpy(t->sorted, t->times, (size_t) n * sizeof *t->times);
    qsort(t->sorted, (size_t) n, sizeof *t->sorted, ascending);
    return n % 2 ? t->sorted[n / 2] : (t->sorted[n / 2 - 1] + t->sorted[n / 2]) / 2;
}

static size_t arena_peak(const sl_trainer *t, sl_tier tier)
{
    size_t peak = sl_engine_peak_bytes(t->train.engine, tier);
    if (t->validation.engine)
        peak = SL_MAX(peak, sl_engine_peak_bytes(t->validation.engine, tier));
    if (t->samples.reader.engine)
        peak = SL_MAX(peak, sl_engine_peak_bytes(t->samples.reader.engine, tier));
    return peak;
}

/* The host's peak: while planning the heap alone, afterwards the arena and the heap beside it. */
static size_t host_peak(const sl_trainer *t)
{
    return SL_MAX(t->heap_before_peak, arena_peak(t, SL_TIER_HOST) + sl_heap_peak_bytes());
}

size_t sl_trainer_process_bytes(const sl_trainer *t)
{
    return t->base_bytes + sl_memory_resident().mapped;
}

void sl_run_measured(const sl_trainer *t, sl_summary *m)
{
    double peak = t->prepared.costs->peak_flops;
    sl_engine_summary(t->train.engine, m);
    double hardware_flops = m->hfu * peak * m->step_s; /* the last step's, whose time gives way to the median */
    m->step_s = sl_run_median(t);
    m->peak_bytes[SL_TIER_DEVICE] = arena_peak(t, SL_TIER_DEVICE);
    m->peak_bytes[SL_TIER_HOST] = host_peak(t);
    memcpy(m->budget_bytes, t->prepared.budget, sizeof m->budget_bytes);
    sl_summary_rates(t->prepared.program, peak, hardware_flops, m);
}

static void predicted(const sl_trainer *t, sl_summary *p)
{
    *p = t->prepared.plan->predicted;
    sl_prepared_peaks(&t->prepared, p->peak_bytes);
    memcpy(p->budget_bytes, t->prepared.budget, sizeof p->budget_bytes);
}

/* Passes over the data once all steps are done. */
static double epochs(const sl_trainer *t)
{
    int64_t left = t->setup.steps - t->progress.step;
    double position = (double) t->progress.position + (double) left * (double) t->setup.program.chunking.sequences;
    return position / (double) t->source->sequences[SL_SPLIT_TRAIN];
}

void sl_trainer_look(const sl_trainer *t, sl_trainer_view *v)
{
    const sl_prepared *p = &t->prepared;
    int64_t sequences = t->source->sequences[SL_SPLIT_TRAIN];
    *v = (sl_trainer_view){
        .setup = &t->setup,
        .first_step = t->first_step,
        .step = t->progress.step,
        .steps = t->setup.steps,
        .tokens = p->program->tokens,
        .parameters = sl_model_parameters(&t->setup.model),
        .trained = sl_prepared_trained(&t->prepared),
        .sequences = sequences,
        .val_sequences = t->source->sequences[SL_SPLIT_VALIDATION],
        .data = t->source->contents[SL_SPLIT_TRAIN],
        .val_data = t->source->contents[SL_SPLIT_VALIDATION],
        .epoch = (double) t->progress.position / (double) sequences,
        .epochs = epochs(t),
        .host_arena_bytes = arena_peak(t, SL_TIER_HOST),
        .heap_bytes = sl_heap_peak_bytes(),
        .lower_bound_s = p->plan->lower_bound_s,
        .plan_s = p->plan_s,
        .limit = sl_limit_name(p->plan->limit),
        .costs = p->costs->source,
        .numerics = t->identity.numerics,
        .device = t->setup.device,
        .weights = t->weights.text,
        .chunk_tokens = t->setup.program.chunking.chunk_tokens,
        .chunks = p->program->n_chunks,
        .rounds = p->program->n_rounds,
        .val_step = t->val_step,
        .val_loss = t->val_loss,
        .sample_step = t->samples.step,
        .sample = sl_run_samples_text(&t->samples),
        .checkpoint_step = t->checkpoint_step,
        .out = t->setup.out,
        .checkpoint = t->checkpoint_step >= 0 ? t->checkpoint : NULL,
        .seconds_left = sl_run_median(t) * (double) (t->setup.steps - t->progress.step),
        .skipped = t->skipped,
        .interrupted = t->interrupted,
    };
    memcpy(v->budget_bytes, t->prepared.budget, sizeof v->budget_bytes);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        v->unlimited_bytes[tier] = t->setup.share[tier] > 0 ? t->prepared.unlimited_bytes[tier] : 0;
    predicted(t, &v->predicted);
    sl_run_measured(t, &v->measured);
}

/* ---- JSON ---- */

static void put_summary(sl_json_writer *w, const sl_summary *s)
{
    sl_summary_put(s, w);
    sl_json_put_bytes(w, "device_budget_bytes", s->budget_bytes[SL_TIER_DEVICE]);
    sl_json_put_bytes(w, "host_budget_bytes", s->budget_bytes[SL_TIER_HOST]);
}

static void put_streams(sl_json_writer *w, const sl_summary *s)
{
    sl_json_begin_object(w, "busy_s");
    for (int i = 0; i < SL_STREAM_COUNT; i++)
        sl_json_put_f64(w, sl_streams[i].name, s->busy_s[i]);
    sl_json_end_object(w);
    sl_json_begin_object(w, "wait_s");
    for (int i = 0; i < SL_STREAM_COUNT; i++)
        if (i != SL_STREAM_COMPUTE)
            sl_json_put_f64(w, sl_streams[i].name, s->wait_s[i]);
    sl_json_end_object(w);
}

/* For people. */
static void put_summary_of(const sl_trainer *t, const sl_corpus_contents *contents, sl_json_writer *w)
{
    char summary[1600];
    sl_corpus_summary(contents, summary, sizeof summary);
    size_t length = strlen(summary);
    if (t->setup.mask_documents && !contents->packing)
        snprintf(summary + length, sizeof summary - length, "; documents kept apart");
    sl_json_put_string(w, "summary", summary);
}

/* What the run trains and validates on. A held-out share has no files of its own. */
static void put_data(const sl_trainer *t, sl_json_writer *w)
{
    static const char *const keys[SL_SPLIT_COUNT] = {"data", "val_data"};
    for (int split = 0; split < SL_SPLIT_COUNT; split++) {
        const sl_corpus_contents *contents = t->source->contents[split];
        int64_t sequences = t->source->sequences[split];
        if (!sequences)
            continue;
        sl_json_begin_object(w, keys[split]);
        if (contents)
            sl_corpus_put(contents, w);
        sl_json_put_i64(w, "sequences", sequences);
        if (split == SL_SPLIT_TRAIN)
            sl_json_put_f64(w, "epochs", epochs(t));
        if (contents)
            put_summary_of(t, contents, w);
        sl_json_end_object(w);
    }
}

sl_status sl_trainer_report(sl_trainer *t, const char **json)
{
    sl_json_writer w = {0};
    uint64_t hash;
    char text[17];
    sl_summary measured;
    SL_TRY(sl_store_hash(&t->store, &hash));
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    sl_run_measured(t, &measured);
    sl_json_begin_object(&w, NULL);
    sl_json_begin_array(&w, "loss");
    for (int64_t i = 0; i < t->progress.step - t->first_step; i++)
        sl_json_put_f64(&w, NULL, t->loss[i]);
    sl_json_end_array(&w);
    put_summary(&w, &measured);
    sl_json_put_bytes(&w, "process_bytes", sl_trainer_process_bytes(t));
    if (t->device->class->overhead)
        sl_json_put_bytes(&w, "device_context_bytes", t->device->class->overhead(t->device));
    sl_json_put_f64(&w, "predicted_step_s", t->prepared.plan->predicted.step_s);
    put_data(t, &w);
    sl_json_put_string(&w, "weights_hash", text);
    sl_weights_put(&t->weights, &w);
    sl_json_put_i64(&w, "step", t->progress.step);
    sl_json_put_bool(&w, "interrupted", t->interrupted);
    sl_json_end_object(&w);
    sl_text_free(&t->report);
    t->report = w.text;
    SL_TRY(sl_text_status(&t->report));
    *json = t->report.data;
    return SL_OK;
}

/* ---- events ---- */

/* What a roofline needs. The peak is what MFU is measured against. */
static void put_hardware(sl_trainer *t, sl_json_writer *w)
{
    sl_hardware hardware = {0};
    t->device->class->hardware(t->device, &hardware);
    sl_json_begin_object(w, "hardware");
    sl_json_put_string(w, "name", hardware.name);
    sl_json_put_f64(w, "peak_flops", t->prepared.costs->peak_flops);
    sl_json_put_f64(w, "memory_bandwidth", hardware.memory_bandwidth[SL_TIER_DEVICE]);
    sl_json_put_f64(w, "link_in_bandwidth", t->prepared.costs->link_bytes_per_s[0]);
    sl_json_put_f64(w, "link_out_bandwidth", t->prepared.costs->link_bytes_per_s[1]);
    sl_json_end_object(w);
}

sl_status sl_run_event_start(sl_trainer *t)
{
    char time[32];
    sl_summary p;
    sl_clock_utc(time);
    sl_json_writer *w = sl_events_begin(t->events, "run");
    sl_json_put_string(w, "kind", "run");
    sl_json_put_string(w, "sluice", SL_VERSION);
    sl_json_put_string(w, "model", t->setup.model.name);
    sl_json_put_i64(w, "parameters", sl_model_parameters(&t->setup.model));
    sl_json_put_i64(w, "trained_parameters", sl_prepared_trained(&t->prepared));
    sl_json_put_i64(w, "tokens_per_step", t->prepared.program->tokens);
    sl_json_put_i64(w, "seqlen", t->setup.program.chunking.seqlen);
    sl_json_put_string(w, "device", t->setup.device);
    sl_json_put_string(w, "precision", sl_precision_name(t->setup.program.precision));
    sl_json_put_string(w, "time", time);
    sl_json_put_i64(w, "first_step", t->first_step);
    sl_json_put_string(w, "numerics", t->identity.numerics);
    sl_json_put_i64(w, "sequences", t->source->sequences[SL_SPLIT_TRAIN]);
    sl_weights_put(&t->weights, w);
    put_data(t, w);
    sl_json_begin_object(w, "options");
    sl_options_put(t->options, w);
    sl_json_end_object(w);
    SL_TRY(sl_events_end(t->events));

    predicted(t, &p);
    w = sl_events_begin(t->events, "plan");
    sl_json_put_string(w, "costs", t->prepared.costs->source);
    sl_json_put_string(w, "limit", sl_limit_name(t->prepared.plan->limit));
    sl_json_put_f64(w, "lower_bound_s", t->prepared.plan->lower_bound_s);
    sl_json_put_f64(w, "plan_ms", 1e3 * t->prepared.plan_s);
    sl_json_put_f64(w, "measure_s", t->prepared.measure_s);
    sl_json_put_f64(w, "memory_s", t->memory_s);
    sl_json_put_f64(w, "weights_s", t->weights_s);
    sl_json_put_i64(w, "rounds", t->prepared.program->n_rounds);
    sl_json_put_i64(w, "chunks", t->prepared.program->n_chunks);
    sl_json_put_i64(w, "actions", t->prepared.plan->n_actions);
    put_hardware(t, w);
    put_summary(w, &p);
    put_streams(w, &p);
    return sl_events_end(t->events);
}

/* Each of several losses on its own, without its weight. */
static void put_losses(const sl_trainer *t, const sl_program *program, sl_json_writer *w)
{
    if (program->n_losses < 2)
        return;
    sl_json_begin_object(w, "losses");
    for (int32_t k = 0; k < program->n_losses; k++)
        sl_json_put_f64(w, program->losses[k].name, t->step_losses[k]);
    sl_json_end_object(w);
}

static void put_bits_per_byte(const sl_trainer *t, sl_json_writer *w)
{
    if (isfinite(t->bits_per_byte))
        sl_json_put_f64(w, "bits_per_byte", t->bits_per_byte);
}

sl_status sl_run_event_step(sl_trainer *t, const sl_step_result *r)
{
    sl_json_writer *w = sl_events_begin(t->events, "step");
    sl_json_put_i64(w, "step", r->step);
    sl_json_put_f64(w, "loss", r->loss);
    put_losses(t, t->prepared.program, w);
    put_bits_per_byte(t, w);
    sl_json_put_f64(w, "grad_norm", r->grad_norm);
    sl_json_put_f64(w, "learning_rate", r->learning_rate);
    sl_json_put_f64(w, "seconds", r->seconds);
    sl_json_put_f64(w, "data_s", t->data_s);
    sl_json_put_f64(w, "tokens_per_s", r->tokens_per_s);
    if (r->skipped)
        sl_json_put_bool(w, "skipped", true);
    return sl_events_end(t->events);
}

sl_status sl_run_event_validation(sl_trainer *t, double seconds)
{
    sl_json_writer *w = sl_events_begin(t->events, "validation");
    sl_json_put_i64(w, "step", t->val_step);
    sl_json_put_f64(w, "loss", t->val_loss);
    put_losses(t, t->prepared.val_program, w);
    put_bits_per_byte(t, w);
    sl_json_put_f64(w, "seconds", seconds);
    return sl_events_end(t->events);
}

sl_status sl_run_event_sample(sl_trainer *t)
{
    const sl_run_samples *s = &t->samples;
    sl_json_writer *w = sl_events_begin(t->events, "sample");
    sl_json_put_i64(w, "step", s->step);
    sl_json_put_string(w, "prompt", t->setup.sample_prompt);
    sl_json_put_string(w, "text", sl_run_samples_text(s));
    sl_json_begin_array(w, "tokens");
    for (int64_t i = 0; i < s->made.count; i++)
        sl_json_put_i64(w, NULL, s->made.ids[i]);
    sl_json_end_array(w);
    sl_json_put_string(w, "stop", s->why);
    sl_json_put_f64(w, "seconds", s->seconds);
    return sl_events_end(t->events);
}

sl_status sl_run_event_checkpoint(sl_trainer *t, double seconds)
{
    sl_json_writer *w = sl_events_begin(t->events, "checkpoint");
    sl_json_put_i64(w, "step", t->checkpoint_step);
    sl_json_put_string(w, "path", t->checkpoint);
    sl_json_put_f64(w, "seconds", seconds);
    return sl_events_end(t->events);
}

/* Predicted and measured time of the last step and its work, summed over the tasks of each op (on the device; beside host memory)
 * and over the copies. */
typedef struct op_sums {
    int64_t count;
    double predicted, measured, recomputed; /* seconds; recomputed: of those measured */
    double flops, bytes;                    /* flops: as the kernels do them */
} op_sums;

static void add_action(sl_trainer *t, const sl_action *a, const sl_span *span, op_sums *sums)
{
    const sl_program *program = t->prepared.program;
    double seconds = span->end - span->start;
    sums->count++;
    sums->predicted += a->end_s - a->start_s;
    sums->measured += seconds;
    if (a->kind == SL_ACTION_COPY) {
        sums->bytes += (double) program->objects[a->object].bytes;
        return;
    }
    const sl_work *work = &program->signatures[program->tasks[a->task].signature].work;
    sums->recomputed += a->recompute ? seconds : 0;
    sums->flops += work->hardware_flops;
    sums->bytes += work->read_bytes + work->write_bytes;
}

static void put_op(sl_json_writer *w, const char *name, const char *stream, const op_sums *sums)
{
    if (!sums->count)
        return;
    sl_json_begin_object(w, NULL);
    sl_json_put_string(w, "op", name);
    sl_json_put_string(w, "stream", stream);
    sl_json_put_i64(w, "count", sums->count);
    sl_json_put_f64(w, "predicted_s", sums->predicted);
    sl_json_put_f64(w, "measured_s", sums->measured);
    sl_json_put_f64(w, "recomputed_s", sums->recomputed);
    sl_json_put_f64(w, "flops", sums->flops);
    sl_json_put_f64(w, "bytes", sums->bytes);
    sl_json_end_object(w);
}

static void put_ops(sl_trainer *t, sl_json_writer *w)
{
    const sl_plan *plan = t->prepared.plan;
    const sl_span *spans = sl_engine_spans(t->train.engine);
    op_sums tasks[SL_OP_COUNT][SL_STREAM_COUNT] = {0}, copies[SL_STREAM_COUNT] = {0};
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        op_sums *sums = a->kind == SL_ACTION_COPY ? copies : tasks[t->prepared.program->tasks[a->task].op];
        add_action(t, a, &spans[i], &sums[a->stream]);
    }
    sl_json_begin_array(w, "ops");
    for (int i = 0; i < SL_OP_COUNT; i++)
        for (int stream = 0; stream < SL_STREAM_COUNT; stream++)
            put_op(w, sl_op((sl_op_id) i)->name, sl_streams[stream].name, &tasks[i][stream]);
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        const sl_stream_def *stream = &sl_streams[sl_links[link].stream];
        char name[32];
        snprintf(name, sizeof name, "copy %s", stream->name);
        put_op(w, name, stream->name, &copies[sl_links[link].stream]);
    }
    sl_json_end_array(w);
}

sl_status sl_run_event_end(sl_trainer *t, const char *reason)
{
    sl_summary measured;
    sl_run_measured(t, &measured);
    sl_json_writer *w = sl_events_begin(t->events, "end");
    sl_json_put_string(w, "reason", reason);
    sl_json_put_i64(w, "step", t->progress.step);
    sl_json_put_f64(w, "predicted_step_s", t->prepared.plan->predicted.step_s);
    put_summary(w, &measured);
    sl_json_put_bytes(w, "process_bytes", sl_trainer_process_bytes(t));
    put_streams(w, &measured);
    put_ops(t, w);
    return sl_events_end(t->events);
}
