/* Every figure that a run reports (progress line, --json, event log) against what is known from elsewhere. One run of seven steps in the
 * least device memory with validation and checkpoints: begun, dropped after three steps, and resumed. */
#include "core/clock.h"
#include "run_log.h"
#include "train/run.h"

enum { STEPS = 7, FIRST_PART = 3, SEQUENCES = 6, SEQLEN = 32, TOKENS = 192 };

static double element(const sl_json *row, int index)
{
    const sl_json *at = row->child;
    for (; index > 0; index--)
        at = at->next;
    return at->number;
}

/* ---- figures that follow from others ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Of all but the first, when there are others. */
static double median(const double *seconds, int count)
{
    double sorted[STEPS];
    int n = count > 1 ? count - 1 : 1;
    memcpy(sorted, seconds + (count > 1), (size_t) n * sizeof *sorted);
    qsort(sorted, (size_t) n, sizeof *sorted, ascending);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

typedef struct plan_sums {
    double hardware_flops, flops, recomputed, copied[2];
    int64_t copies[2];
} plan_sums;

static plan_sums sum_plan(const sl_trainer *t)
{
    plan_sums sums = {0};
    const sl_plan *plan = t->prepared.plan;
    const sl_program *program = t->prepared.program;
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        if (a->kind == SL_ACTION_COPY) {
            sums.copied[a->stream == SL_STREAM_OUT] += (double) program->objects[a->object].bytes;
            sums.copies[a->stream == SL_STREAM_OUT]++;
            continue;
        }
        const sl_work *work = &program->signatures[program->tasks[a->task].signature].work;
        sums.hardware_flops += work->hardware_flops;
        *(a->recompute ? &sums.recomputed : &sums.flops) += work->flops;
    }
    return sums;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void check_measured(const sl_trainer *t, const sl_summary *m, double step_s)
{
    plan_sums sums = sum_plan(t);
    double peak = t->prepared.costs->peak_flops, flops = t->prepared.program->flops;
    CHECK(sums.copied[0] > 0 && sums.copied[1] > 0 && sums.recomputed > 0 && peak > 0); /* else little is tested here */
    CHECK(m->step_s == step_s);
    CHECK(near(m->tokens_per_s, TOKENS / step_s));
    CHECK(near(m->tflops, flops / step_s / 1e12));
    CHECK(near(m->mfu, flops / step_s / peak));
    CHECK(near(m->hfu, sums.hardware_flops / step_s / peak));
    CHECK(m->link_bytes[SL_LINK_IN] == sums.copied[0] && m->link_bytes[SL_LINK_OUT] == sums.copied[1]);
    CHECK(near(m->recompute_fraction, sums.recomputed / sums.flops));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        size_t engines = SL_MAX(sl_engine_peak_bytes(t->train.engine, (sl_tier) tier),
                                sl_engine_peak_bytes(t->validation.engine, (sl_tier) tier));
        size_t host = SL_MAX(t->heap_before_peak, engines + sl_heap_peak_bytes());
        CHECK_U64(m->peak_bytes[tier], tier == SL_TIER_HOST ? host : engines);
        CHECK_U64(m->budget_bytes[tier], t->prepared.budget[tier]);
    }
}

static void check_public(const sl_trainer *t, const sl_trainer_view *v, double loss)
{
    sl_trainer_figures f = SL_SIZED(sl_trainer_figures);
    const sl_summary *m = &v->measured;
    CHECK_OK(sl_trainer_get(t, &f));
    CHECK(f.first_step == v->first_step && f.step == v->step && f.steps == v->steps && f.skipped == v->skipped);
    CHECK(f.loss == loss && f.val_step == v->val_step && f.checkpoint_step == v->checkpoint_step);
    CHECK(v->val_step < 0 ? isnan(f.val_loss) : f.val_loss == v->val_loss);
    CHECK(f.checkpoint == v->checkpoint && f.interrupted == v->interrupted);
    CHECK(f.parameters == v->parameters && f.tokens_per_step == v->tokens && f.epoch == v->epoch);
    CHECK(f.step_s == m->step_s && f.tokens_per_s == m->tokens_per_s && f.mfu == m->mfu);
    CHECK(f.seconds_left == v->seconds_left && f.predicted_step_s == v->predicted.step_s &&
          f.predicted_tokens_per_s == v->predicted.tokens_per_s);
    CHECK(f.device_budget_bytes == v->budget_bytes[SL_TIER_DEVICE] &&
          f.host_budget_bytes == v->budget_bytes[SL_TIER_HOST]);
    CHECK(f.device_peak_bytes == m->peak_bytes[SL_TIER_DEVICE] && f.host_peak_bytes == m->peak_bytes[SL_TIER_HOST]);
    CHECK(f.weights == v->weights && f.device == v->device && f.costs == v->costs && f.limit == v->limit);
    CHECK_STR(f.precision, "f32");
}

static void check_view(const sl_trainer *t, const double *seconds, int first, int step)
{
    sl_trainer_view v;
    sl_trainer_look(t, &v);
    double step_s = median(seconds, step - first);
    CHECK_I64(v.first_step, first);
    CHECK_I64(v.step, step);
    CHECK_I64(v.steps, STEPS);
    CHECK_I64(v.tokens, TOKENS);
    CHECK_I64(v.parameters, sl_model_parameters(&t->setup.model));
    CHECK(v.sequences > 100 && v.val_sequences > 1);
    CHECK(near(v.epoch, (double) (step * SEQUENCES) / (double) v.sequences));
    check_measured(t, &v.measured, step_s);
    CHECK(near(v.seconds_left, step_s * (STEPS - step)));
    CHECK_I64(v.chunk_tokens, 64);
    CHECK_I64(v.chunks, 3);
    CHECK_I64(v.rounds, t->prepared.program->n_rounds);
    CHECK_I64(v.val_step, step == STEPS ? STEPS : step < 2 ? -1 : step / 2 * 2 < first ? -1 : step / 2 * 2);
    CHECK_I64(v.checkpoint_step, step == STEPS ? STEPS : step < 3 ? -1 : step / 3 * 3);
    CHECK((v.checkpoint != NULL) == (v.checkpoint_step >= 0));
    CHECK_I64(v.skipped, 0);
    CHECK(!v.interrupted && v.setup == &t->setup);
    CHECK_STR(v.out, out);
    CHECK_STR(v.device, "cpu");
    CHECK_STR(v.costs, t->prepared.costs->source);
    CHECK_STR(v.numerics, t->device->class->numerics(t->device));
    CHECK_STR(v.limit, sl_limit_name(t->prepared.plan->limit));
    CHECK(v.lower_bound_s == t->prepared.plan->lower_bound_s && v.plan_s == t->prepared.plan_s && v.plan_s > 0);
    CHECK(v.predicted.step_s == t->prepared.plan->predicted.step_s && v.predicted.step_s > 0);
    CHECK_U64(v.predicted.peak_bytes[SL_TIER_DEVICE], t->prepared.plan->predicted.peak_bytes[SL_TIER_DEVICE]);
    CHECK(v.predicted.peak_bytes[SL_TIER_HOST] > t->prepared.plan->predicted.peak_bytes[SL_TIER_HOST]);
    CHECK_U64(v.budget_bytes[SL_TIER_DEVICE], t->prepared.budget[SL_TIER_DEVICE]);
    CHECK_U64(t->prepared.plan_budget[SL_TIER_HOST], SIZE_MAX); /* not limited, whatever the heap takes */
    CHECK_U64(v.heap_bytes, sl_heap_peak_bytes());
}

/* ---- the report ---- */

static void check_summary(const sl_json *object, const sl_summary *m)
{
    CHECK(number(object, "step_s") == m->step_s && number(object, "tokens_per_s") == m->tokens_per_s);
    CHECK(number(object, "tflops") == m->tflops && number(object, "mfu") == m->mfu && number(object, "hfu") == m->hfu);
    CHECK(number(object, "device_peak_bytes") == (double) m->peak_bytes[SL_TIER_DEVICE]);
    CHECK(number(object, "h2d_bytes_per_step") == m->link_bytes[SL_LINK_IN] &&
          number(object, "d2h_bytes_per_step") == m->link_bytes[SL_LINK_OUT]);
    CHECK(number(object, "recompute_fraction") == m->recompute_fraction);
    CHECK(number(object, "device_budget_bytes") == (double) m->budget_bytes[SL_TIER_DEVICE]);
    CHECK(sl_json_get(object, "host_budget_bytes")->kind == SL_JSON_NULL); /* not limited */
}

static void check_report(sl_trainer *t, const double *loss, int count, int step)
{
    const char *text;
    uint64_t hash;
    char hex[17];
    sl_trainer_view v;
    CHECK_OK(sl_trainer_report(t, &text));
    const sl_json *root = parse(text, strlen(text)), *one = sl_json_get(root, "loss")->child;
    CHECK_I64(sl_json_get(root, "loss")->count, count);
    for (int i = 0; i < count && one; i++, one = one->next)
        CHECK(one->number == loss[i]);
    sl_trainer_look(t, &v);
    check_summary(root, &v.measured);
    CHECK(number(root, "host_peak_bytes") >= (double) v.host_arena_bytes && v.host_arena_bytes > 0);
    CHECK(number(root, "predicted_step_s") == v.predicted.step_s);
    CHECK(number(root, "step") == step);
    CHECK(!sl_json_get(root, "interrupted")->boolean);
    CHECK_OK(sl_store_hash(&t->store, &hash));
    snprintf(hex, sizeof hex, "%016" PRIx64, hash);
    CHECK_STR(string(root, "weights_hash"), hex);
}

/* ---- events ---- */

static void check_step_event(const event_log *log, const sl_step_result *r)
{
    const sl_json *e = event(log, "step", r->step - 1);
    REQUIRE(e != NULL);
    CHECK(number(e, "step") == (double) r->step && number(e, "loss") == r->loss);
    CHECK(number(e, "grad_norm") == r->grad_norm && number(e, "learning_rate") == r->learning_rate);
    CHECK(number(e, "seconds") == r->seconds && number(e, "tokens_per_s") == r->tokens_per_s);
    CHECK(number(e, "data_s") > 0 && number(e, "data_s") < r->seconds);
    CHECK(sl_json_get(e, "skipped") == NULL);
}

static void check_start_events(const sl_trainer *t, const event_log *log, int part)
{
    const sl_json *run = event(log, "run", part), *plan = event(log, "plan", part);
    sl_hardware hardware = {0};
    REQUIRE(run && plan);
    CHECK_STR(string(run, "kind"), "run");
    CHECK_STR(string(run, "sluice"), SL_VERSION);
    CHECK_STR(string(run, "model"), "byte-test");
    CHECK_STR(string(run, "device"), "cpu");
    CHECK_STR(string(run, "precision"), "f32");
    CHECK_STR(string(run, "numerics"), t->identity.numerics);
    CHECK(strlen(string(run, "time")) >= 20);
    CHECK(number(run, "parameters") == (double) sl_model_parameters(&t->setup.model));
    CHECK(number(run, "tokens_per_step") == TOKENS && number(run, "seqlen") == SEQLEN);
    CHECK(number(run, "first_step") == (part ? FIRST_PART : 0));
    CHECK(number(run, "sequences") == (double) t->source->sequences[SL_SPLIT_TRAIN]);
    CHECK(number(sl_json_get(run, "options"), "steps") == STEPS);

    const sl_prepared *p = &t->prepared;
    CHECK_STR(string(plan, "costs"), p->costs->source);
    CHECK_STR(string(plan, "limit"), sl_limit_name(p->plan->limit));
    CHECK(number(plan, "lower_bound_s") == p->plan->lower_bound_s &&
          number(plan, "step_s") == p->plan->predicted.step_s);
    CHECK(near(number(plan, "plan_ms"), 1e3 * p->plan_s) && number(plan, "measure_s") == p->measure_s);
    CHECK(number(plan, "memory_s") == t->memory_s && t->memory_s > 0);
    CHECK(number(plan, "weights_s") == t->weights_s && t->weights_s > 0);
    CHECK(number(plan, "rounds") == p->program->n_rounds && number(plan, "chunks") == p->program->n_chunks);
    CHECK(number(plan, "actions") == p->plan->n_actions);
    CHECK(number(sl_json_get(plan, "busy_s"), "compute") == p->plan->predicted.busy_s[SL_STREAM_COMPUTE]);
    CHECK(number(sl_json_get(plan, "wait_s"), "in") == p->plan->predicted.wait_s[SL_STREAM_IN]);
    const sl_json *hw = sl_json_get(plan, "hardware");
    t->device->class->hardware(t->device, &hardware);
    CHECK_STR(string(hw, "name"), hardware.name);
    CHECK(number(hw, "peak_flops") == p->costs->peak_flops);
    CHECK(number(hw, "memory_bandwidth") == hardware.memory_bandwidth[SL_TIER_DEVICE]);
    CHECK(number(hw, "link_in_bandwidth") == p->costs->link_bytes_per_s[0]);
    CHECK(number(hw, "link_out_bandwidth") == p->costs->link_bytes_per_s[1]);
}

/* How many tasks of that op the plan runs on that stream, and their measured time. */
static int64_t count_op(const sl_trainer *t, const char *name, const char *stream, double *measured)
{
    const sl_plan *plan = t->prepared.plan;
    const sl_span *spans = sl_engine_spans(t->train.engine);
    int64_t count = 0;
    *measured = 0;
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        if (a->kind != SL_ACTION_TASK || strcmp(sl_streams[a->stream].name, stream) != 0 ||
            strcmp(sl_op(t->prepared.program->tasks[a->task].op)->name, name) != 0)
            continue;
        *measured += spans[i].end - spans[i].start;
        count++;
    }
    return count;
}

/* The last step by op: all its actions, their times and their work. */
static void check_ops(const sl_trainer *t, const sl_json *end)
{
    const sl_span *spans = sl_engine_spans(t->train.engine);
    const sl_plan *plan = t->prepared.plan;
    plan_sums sums = sum_plan(t);
    double measured = 0, want_measured = 0, predicted = 0, want_predicted = 0, recomputed = 0, want_recomputed = 0;
    double flops = 0;
    int64_t count = 0, copies = 0;
    for (int32_t i = 0; i < plan->n_actions; i++) {
        want_measured += spans[i].end - spans[i].start;
        want_predicted += plan->actions[i].end_s - plan->actions[i].start_s;
        want_recomputed += plan->actions[i].recompute ? spans[i].end - spans[i].start : 0;
    }
    for (const sl_json *op = sl_json_get(end, "ops")->child; op; op = op->next) {
        count += (int64_t) number(op, "count");
        measured += number(op, "measured_s");
        predicted += number(op, "predicted_s");
        recomputed += number(op, "recomputed_s");
        flops += number(op, "flops");
        if (strncmp(string(op, "op"), "copy ", 5) != 0) {
            double seconds;
            CHECK(number(op, "bytes") > 0);
            CHECK_I64(number(op, "count"), count_op(t, string(op, "op"), string(op, "stream"), &seconds));
            CHECK(near(number(op, "measured_s"), seconds));
            continue;
        }
        int way = strcmp(string(op, "op"), "copy out") == 0;
        CHECK_STR(string(op, "stream"), way ? "out" : "in");
        CHECK(number(op, "bytes") == sums.copied[way] && number(op, "count") == (double) sums.copies[way]);
        copies++;
    }
    CHECK_I64(copies, 2);
    CHECK_I64(count, plan->n_actions);
    CHECK(near(measured, want_measured) && near(predicted, want_predicted) && near(recomputed, want_recomputed));
    CHECK(near(flops, sums.hardware_flops));
}

static void check_end_event(sl_trainer *t, const event_log *log)
{
    const sl_json *end = event(log, "end", 0);
    sl_trainer_view v;
    sl_summary s;
    REQUIRE(end && !event(log, "end", 1)); /* the part that was dropped has none */
    sl_trainer_look(t, &v);
    sl_engine_summary(t->train.engine, &s);
    CHECK_STR(string(end, "reason"), "done");
    CHECK(number(end, "step") == STEPS && number(end, "predicted_step_s") == v.predicted.step_s);
    check_summary(end, &v.measured);
    for (int i = 0; i < SL_STREAM_COUNT; i++)
        CHECK(number(sl_json_get(end, "busy_s"), sl_streams[i].name) == s.busy_s[i]);
    CHECK(number(sl_json_get(end, "wait_s"), "in") == s.wait_s[SL_STREAM_IN]);
    CHECK(number(sl_json_get(end, "wait_s"), "out") == s.wait_s[SL_STREAM_OUT]);
    CHECK(number(sl_json_get(end, "wait_s"), "host") == s.wait_s[SL_STREAM_HOST]);
    check_ops(t, end);
}

/* Rows of the lines of one step's event, one behind the other; `row` gets each. */
static int64_t walk_rows(const event_log *log, const char *type, int64_t step, int64_t columns,
                         void (*row)(const sl_trainer *, const sl_json *, int64_t), const sl_trainer *t)
{
    int64_t n = 0;
    const sl_json *e;
    for (int64_t i = 0; (e = event(log, type, i)) != NULL; i++) {
        if ((int64_t) number(e, "step") != step)
            continue;
        CHECK_I64(number(e, "first"), n);
        CHECK_I64(number(e, "count"),
                  strcmp(type, "places") ? t->prepared.plan->n_actions : t->prepared.plan->n_allocations);
        CHECK_I64(sl_json_get(e, "columns")->count, columns);
        for (const sl_json *r = sl_json_get(e, "rows")->child; r; r = r->next, n++) {
            CHECK_I64(r->count, columns);
            row(t, r, n);
        }
    }
    return n;
}

static void check_action(const sl_trainer *t, const sl_json *row, int64_t i)
{
    const sl_action *a = &t->prepared.plan->actions[i];
    const sl_span *span = &sl_engine_spans(t->train.engine)[i];
    const sl_program *program = t->prepared.program;
    const sl_json *text[4] = {row->child, row->child->next, row->child->next->next, row->child->next->next->next};
    bool copy = a->kind == SL_ACTION_COPY;
    CHECK_STR(text[0]->string, sl_streams[a->stream].name);
    CHECK_STR(text[1]->string, copy ? "copy" : sl_op(program->tasks[a->task].op)->name);
    CHECK_STR(text[2]->string, copy ? program->objects[a->object].name : program->tasks[a->task].name);
    CHECK_STR(text[3]->string, copy           ? "copy"
                               : a->recompute ? "recompute"
                                              : sl_phase_name(program->tasks[a->task].phase));
    CHECK(element(row, 4) == (copy ? program->objects[a->object].chunk : program->tasks[a->task].chunk));
    const double want[] = {a->start_s, a->end_s, span->start, span->end};
    for (int k = 0; k < 4; k++)
        CHECK(fabs(element(row, 5 + k) - 1e9 * want[k]) <= 0.5001); /* nearest nanosecond */
    CHECK(element(row, 9) == (copy ? (double) program->objects[a->object].bytes : 0));
}

static void check_place(const sl_trainer *t, const sl_json *row, int64_t i)
{
    const sl_allocation *place = &t->prepared.plan->allocations[i];
    const sl_program *program = t->prepared.program;
    CHECK_STR(row->child->string, place->tier == SL_TIER_HOST ? "host" : "device");
    CHECK_STR(row->child->next->string,
              place->object < 0 ? "workspace" : sl_object_class_name(program->objects[place->object].class));
    CHECK(element(row, 2) == (double) place->bytes && element(row, 3) == place->first &&
          element(row, 4) == place->last);
}

static void check_log(sl_trainer *t, const sl_step_result *results)
{
    static event_log log;
    read_log(&log);
    check_start_events(t, &log, 1);
    for (int i = 0; i < STEPS; i++)
        check_step_event(&log, &results[i]);
    CHECK_STR(steps_of(&log, "step"), "1 2 3 4 5 6 7");
    CHECK_STR(steps_of(&log, "validation"), "2 4 6 7");
    CHECK_STR(steps_of(&log, "checkpoint"), "3 6 7");
    for (int i = 0; i < 3; i++) {
        char path[700];
        const sl_json *e = event(&log, "checkpoint", i);
        snprintf(path, sizeof path, "%s/checkpoints/step-%08.0f", out, number(e, "step"));
        CHECK_STR(string(e, "path"), path);
        CHECK(number(e, "seconds") > 0);
    }
    double last;
    CHECK_OK(sl_trainer_validate(t, &last)); /* the same sequences, and nothing was learned since */
    CHECK(number(event(&log, "validation", 3), "loss") == last && number(event(&log, "validation", 3), "seconds") > 0);
    CHECK(number(event(&log, "validation", 2), "loss") != last);
    for (int step = 1; step <= STEPS; step++) { /* the second step of each part, and the last */
        bool drawn = step == 2 || step == FIRST_PART + 2 || step == STEPS;
        int64_t actions = 0;
        for (int64_t i = 0; event(&log, "timeline", i); i++)
            actions += number(event(&log, "timeline", i), "step") == step
                           ? sl_json_get(event(&log, "timeline", i), "rows")->count
                           : 0;
        CHECK_I64(actions, drawn ? t->prepared.plan->n_actions : 0);
    }
    CHECK_I64(walk_rows(&log, "timeline", STEPS, 10, check_action, t), t->prepared.plan->n_actions);
    CHECK_I64(walk_rows(&log, "places", STEPS, 5, check_place, t), t->prepared.plan->n_allocations);
    check_end_event(t, &log);
}

/* Where a run stands in its data is in the checkpoint. */
static void check_state(int step)
{
    char path[700], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d/state.json", out, step);
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    const sl_json *root = parse(text, length);
    sl_free(text);
    CHECK(number(root, "step") == step && number(root, "position") == step * SEQUENCES &&
          number(root, "updates") == step);
    CHECK_STR(string(root, "format"), "sluice checkpoint");
    CHECK_STR(string(root, "sluice"), SL_VERSION);
    CHECK(number(sl_json_get(root, "options"), "steps") == STEPS);
    CHECK(strlen(string(root, "time")) >= 20);
}

/* A run that is done keeps the log of its last session. */
static void check_log_stays(const sl_job *job)
{
    static event_log before, after;
    sl_trainer *t;
    read_log(&before);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_trainer_destroy(t);
    read_log(&after);
    CHECK_I64(after.count, before.count);
}

static void run_steps(sl_trainer *t, sl_step_result *results, int first, int last)
{
    double seconds[STEPS], loss[STEPS];
    sl_trainer_view view;
    for (int step = first + 1; step <= last; step++) {
        sl_step_result *r = &results[step - 1];
        *r = (sl_step_result) SL_SIZED(sl_step_result);
        double start = sl_clock_s();
        CHECK_OK(sl_trainer_step(t, r));
        double wall = sl_clock_s() - start;
        CHECK(r->step == step && r->done == (step == STEPS) && !r->skipped);
        CHECK(r->seconds > 0 && r->seconds <= wall && near(r->tokens_per_s, TOKENS / r->seconds));
        CHECK(r->grad_norm > 0 && r->loss > 0);
        seconds[step - first - 1] = r->seconds;
        loss[step - first - 1] = r->loss;
        check_view(t, seconds, first, step);
        sl_trainer_look(t, &view);
        check_public(t, &view, r->loss);
        check_report(t, loss, step - first, step);
    }
}

TEST(figures)
{
    sl_step_result results[STEPS];
    sl_prediction_view view;
    sl_trainer *t;
    static event_log log;
    const char *job_options = "steps 7 val-every 2 val-steps 2 precision f32";
    CHECK_OK(sl_region_create(&region));
    prediction_job(job_options, &view);
    snprintf(out, sizeof out, "%s", test_path("run"));
    snprintf(options, sizeof options, "%s checkpoint-every 3 keep 2 device-mem %zu out '%s' resume true", job_options,
             view.min_bytes[SL_TIER_DEVICE] + view.min_bytes[SL_TIER_DEVICE] / 50, out);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    run_steps(t, results, 0, FIRST_PART);
    read_log(&log);
    check_start_events(t, &log, 0);
    sl_trainer_destroy(t);
    check_state(3);
    CHECK_OK(sl_trainer_create(job, &t));
    run_steps(t, results, FIRST_PART, STEPS);
    check_log(t, results);
    check_state(STEPS);
    check_state(6);
    CHECK(!sl_dir_exists(test_path("run/checkpoints/step-00000003"))); /* keep 2 */
    CHECK_FAILS(sl_trainer_step(t, results), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "all 7 steps are done");
    sl_trainer_destroy(t);
    check_log_stays(job);
    sl_job_destroy(job);
    sl_region_destroy(region);
}

/* No sequence twice: more batches than there is data are as many as there are. */
TEST(validation_ends_with_its_data)
{
    static const char *const batches[] = {"1000", "6", "5"};
    double loss[SL_COUNT(batches)];
    for (int64_t i = 0; i < SL_COUNT(batches); i++) {
        char text[200];
        sl_trainer *t;
        snprintf(text, sizeof text, "steps 7 val-every 2 val-share 0.05 precision f32 val-steps %s", batches[i]);
        sl_job *job = make_job(text);
        CHECK_OK(sl_trainer_create(job, &t));
        CHECK_I64(SL_DIV_UP(t->source->sequences[SL_SPLIT_VALIDATION], SEQUENCES), 6);
        CHECK_OK(sl_trainer_validate(t, &loss[i]));
        sl_trainer_destroy(t);
        sl_job_destroy(job);
    }
    CHECK(loss[0] == loss[1] && loss[1] != loss[2]);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(figures);
    RUN(validation_ends_with_its_data);
    return test_end();
}
