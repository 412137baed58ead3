/* What a profiler is told of a run: scopes that are well nested, one Op around each command, rounds, layers and chunks by their
 * numbers, and nothing at all while nobody looks. The CPU stands in for a device with a profiler. */
#include "engine/internal.h"
#include "run_job.h"
#include "train/run.h"

enum { DEEPEST = 8, MOST_NAMES = 256 };

static struct {
    bool looking;
    int64_t fail_at; /* this launch of the run fails; 0: none */
    int64_t launches, copies;
    sl_scope stack[DEEPEST];
    char top[256];
    int depth;
    int64_t count[SL_SCOPE_OP + 1];
    char names[SL_SCOPE_OP][MOST_NAMES][96]; /* different ones, by level */
    int64_t n_names[SL_SCOPE_OP];
} seen;

static const sl_device_class *inner; /* what the watched device really is */
static sl_device_class watched;

static bool has_name(int level, const char *name)
{
    for (int64_t i = 0; i < seen.n_names[level]; i++)
        if (strcmp(seen.names[level][i], name) == 0)
            return true;
    return false;
}

static bool on_scope(sl_device *device, sl_scope level, const char *name)
{
    (void) device;
    if (!name) {
        REQUIRE(seen.depth > 0);
        CHECK_I64(seen.stack[--seen.depth], level);
        return true;
    }
    seen.count[level]++;
    if (!seen.looking)
        return false;
    REQUIRE(seen.depth < DEEPEST);
    CHECK(seen.depth == 0 ? level == SL_SCOPE_STEP : seen.stack[seen.depth - 1] < level);
    seen.stack[seen.depth++] = level;
    if (level == SL_SCOPE_OP)
        snprintf(seen.top, sizeof seen.top, "%s", name);
    else if (!has_name(level, name)) {
        REQUIRE(seen.n_names[level] < MOST_NAMES);
        snprintf(seen.names[level][seen.n_names[level]++], 96, "%s", name);
    }
    return true;
}

static sl_status on_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    seen.launches++;
    if (seen.looking) {
        CHECK(seen.depth >= 2 && seen.stack[seen.depth - 1] == SL_SCOPE_OP);
        CHECK_CONTAINS(seen.top, sl_op(launch->op)->name);
    }
    if (seen.launches == seen.fail_at)
        return sl_fail(SL_E_DEVICE, "injected");
    return inner->launch(device, stream, launch, span);
}

static sl_status on_copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span)
{
    seen.copies++;
    if (seen.looking)
        CHECK_CONTAINS(seen.top, stream == SL_STREAM_IN ? "Op copy in " : "Op copy out ");
    return inner->copy(device, stream, to, from, bytes, span);
}

static sl_trainer *begin(const char *options, bool looking)
{
    sl_job *job = make_job(options);
    sl_trainer *t;
    memset(&seen, 0, sizeof seen);
    seen.looking = looking;
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    inner = t->device->class;
    watched = *inner;
    watched.scope = on_scope;
    watched.launch = on_launch;
    watched.copy = on_copy;
    t->device->class = &watched;
    return t;
}

static void end(sl_trainer *t)
{
    t->device->class = inner;
    sl_trainer_destroy(t);
}

static sl_trainer *begin_tight(void)
{
    sl_prediction_view view;
    char options[128];
    prediction_job("precision f32", &view);
    snprintf(options, sizeof options, "precision f32 device-mem %zu", view.min_bytes[SL_TIER_DEVICE]);
    return begin(options, true);
}

TEST(scopes_are_well_nested)
{
    sl_trainer *t = begin_tight();
    sl_step_result result = SL_SIZED(sl_step_result);
    for (int step = 0; step < 2; step++) {
        CHECK_OK(sl_trainer_step(t, &result));
        CHECK_I64(seen.depth, 0);
    }
    const sl_program *p = t->prepared.program;
    CHECK_I64(seen.count[SL_SCOPE_STEP], 2);
    CHECK_I64(seen.count[SL_SCOPE_OP], 2 * t->prepared.plan->n_actions);
    CHECK_I64(seen.count[SL_SCOPE_OP], seen.launches + seen.copies);
    CHECK(seen.copies > 0);
    CHECK(has_name(SL_SCOPE_STEP, "Step 1") && has_name(SL_SCOPE_STEP, "Step 2"));
    CHECK_I64(seen.n_names[SL_SCOPE_ROUND], p->n_rounds + 1); /* and the updates */
    CHECK(has_name(SL_SCOPE_ROUND, "Round 0") && has_name(SL_SCOPE_ROUND, "Updates"));
    CHECK_I64(seen.n_names[SL_SCOPE_CHUNK], p->n_chunks);
    CHECK(p->n_chunks == 3 && has_name(SL_SCOPE_CHUNK, "Chunk 2"));
    bool recompute = false;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        char name[96];
        snprintf(name, sizeof name, "Layer %s backward", p->blocks[b].name);
        CHECK_MSG(has_name(SL_SCOPE_LAYER, name), "no scope \"%s\"", name);
        snprintf(name, sizeof name, "Layer %s recompute", p->blocks[b].name);
        recompute |= has_name(SL_SCOPE_LAYER, name);
    }
    bool planned = false;
    for (int32_t i = 0; i < t->prepared.plan->n_actions; i++)
        planned |= t->prepared.plan->actions[i].recompute;
    CHECK(recompute == planned);
    end(t);
}

TEST(nobody_looks)
{
    sl_trainer *t = begin("", false);
    sl_step_result result = SL_SIZED(sl_step_result);
    CHECK_OK(sl_trainer_step(t, &result));
    CHECK_I64(seen.count[SL_SCOPE_STEP], 1);
    for (int level = SL_SCOPE_ROUND; level <= SL_SCOPE_OP; level++)
        CHECK_I64(seen.count[level], 0);
    end(t);
}

TEST(a_failure_closes_all_scopes)
{
    for (int64_t at = 1; at < 60; at += 19) {
        sl_trainer *t = begin_tight();
        sl_step_result result = SL_SIZED(sl_step_result);
        seen.fail_at = at;
        CHECK_FAILS(sl_trainer_step(t, &result), SL_E_DEVICE);
        CHECK_I64(seen.depth, 0);
        end(t);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(scopes_are_well_nested);
    RUN(nobody_looks);
    RUN(a_failure_closes_all_scopes);
    return test_end();
}
