/*
 * A run's life: everything that can fail cheaply is tried before anything that takes long, in this order: options, data, run
 * folder, file of weights, plans, memory, weights. After creation a step allocates nothing.
 *
 *     job -> setup -> loader -> prepared (program, costs, plan) -> log -> device -> engines -> store -> weights or checkpoint
 */
#include "train/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/io_error.h"
#include "core/log.h"
#include "core/memory_limit.h"
#include "train/open_data.h"
#include "train/run.h"

/* A batch of copies has the gradient of its distinct sequences alone, at many times their cost. */
static void warn_of_little_data(const sl_trainer *t)
{
    char a[32], b[32], c[32];
    const sl_chunking *chunking = &t->setup.program.chunking;
    int64_t held = t->source->sequences[SL_SPLIT_TRAIN], taken = chunking->sequences;
    if (held < taken)
        sl_warn("the training data holds %s sequence%s of %s tokens, but a step takes %s: every step repeats the same "
                "ones about %" PRId64 " times; use more data, or --tokens-per-step of at most %" PRId64,
                sl_format_count(held, a), held == 1 ? "" : "s", sl_format_count(chunking->seqlen, b),
                sl_format_count(taken, c), (taken + held / 2) / held, held * chunking->seqlen);
}

static sl_status open_data(sl_trainer *t)
{
    SL_TRY(sl_data_open(&t->setup, &t->source));
    if (!t->setup.program.forward_only)
        warn_of_little_data(t);
    return SL_OK;
}

/* --hw is for planning: it may name a machine whose device is not here. */
static sl_status check_device(const sl_setup *setup)
{
    const sl_device_class *class = NULL;
    if (!sl_device_def_find(setup->device)->computes)
        return sl_fail(SL_E_USAGE, "--device %s computes nothing, it is there to plan for: leave it out to train",
                       setup->device);
    sl_status status = sl_device_find(setup->device, &class);
    if (status != SL_OK && setup->hardware)
        return sl_fail(SL_E_USAGE, "--hw %s plans for another machine: leave it out to train on this one",
                       setup->hardware);
    return status;
}

/* A folder with checkpoints is only ever continued: a new run over it would mix two runs, or remove the first one's. */
static sl_status check_folder(const sl_trainer *t)
{
    const char *out = t->setup.out;
    int64_t newest;
    if (!out && t->setup.resume)
        return sl_fail(SL_E_USAGE, "--resume needs --out, the folder of the run to go on with");
    if (!out && t->setup.checkpoint_every > 0)
        return sl_fail(SL_E_USAGE, "--checkpoint-every needs --out, the folder that takes the checkpoints");
    if (!out)
        return SL_OK;
    if (strlen(out) > 900) /* so that every path below it fits its array */
        return sl_fail(SL_E_USAGE, "--out has a path of %zu bytes: use one of at most 900", strlen(out));
    SL_TRY(sl_checkpoint_newest(out, &newest));
    if (newest >= 0 && !t->setup.resume)
        return sl_fail(SL_E_USAGE,
                       "%s holds a run that has reached step %" PRId64
                       ": give --resume to go on with it, or another --out",
                       out, newest);
    if (access(out, F_OK) == 0 && access(out, W_OK | X_OK) != 0)
        return sl_io_failed("write", out, errno, 0);
    return SL_OK;
}

static sl_status make_folder(const sl_trainer *t)
{
    const char *out = t->setup.out;
    if (!out)
        return SL_OK;
    SL_TRY(sl_dir_create(out));
    return access(out, W_OK | X_OK) == 0 ? SL_OK : sl_io_failed("write", out, errno, 0);
}

static sl_status check_adapter(const sl_trainer *t)
{
    sl_tensors *tensors = NULL;
    if (!t->setup.init_adapter)
        return SL_OK;
    SL_TRY(sl_weights_open_adapter(&t->setup, &tensors));
    sl_tensors_close(tensors);
    return SL_OK;
}

/* Whether the weights to begin with can be opened: they are read last, minutes later. Where there is a checkpoint to go on from
 * they are not read at all, but for a model below adapters. */
static sl_status check_weights(const sl_trainer *t)
{
    sl_tensors *tensors = NULL;
    int64_t newest = -1;
    char path[1024];
    const bool adapters = t->setup.model.lora.rank > 0;
    if (t->setup.resume)
        SL_TRY(sl_checkpoint_newest(t->setup.out, &newest));
    if (newest >= 0 && !adapters)
        return SL_OK;
    if (newest < 0)
        SL_TRY(check_adapter(t));
    SL_TRY(sl_weights_find(&t->setup, path));
    if (!path[0] && adapters && !t->setup.from_scratch)
        return sl_fail(SL_E_USAGE, "adapters are trained beside a model that has been trained: name its weights with "
                                   "--model FOLDER or --init-from, or take random ones with --from-scratch");
    if (!path[0])
        return SL_OK;
    SL_TRY(sl_weights_open(&t->setup, path, &tensors));
    sl_tensors_close(tensors);
    return SL_OK;
}

/* Only once there is a plan: a job that is refused leaves nothing behind. */
static sl_status open_folder(sl_trainer *t)
{
    const char *out = t->setup.out;
    char path[1024];
    if (!out)
        return SL_OK;
    snprintf(path, sizeof path, "%s/checkpoints", out);
    SL_TRY(sl_dir_create(path));
    SL_TRY(sl_checkpoint_tidy(out));
    snprintf(path, sizeof path, "%s/events.jsonl", out);
    return sl_events_open(path, &t->events);
}

static sl_status open_side(sl_trainer *t, const sl_program *program, const sl_plan *plan, sl_run_side *side)
{
    *side = (sl_run_side){program, plan, NULL};
    return plan ? sl_engine_create(t->device, program, plan, &side->engine) : SL_OK;
}

static sl_status open_samples(sl_trainer *t)
{
    const sl_prepared *p = &t->prepared;
    if (!p->sample_plan)
        return SL_OK;
    t->samples.reader = (sl_reader){.program = p->sample_program,
                                    .plan = p->sample_plan,
                                    .rows = 1,
                                    .words = t->setup.model.vocab,
                                    .capacity = p->sample_program->config.cache_rows};
    SL_TRY(sl_engine_create(t->device, p->sample_program, p->sample_plan, &t->samples.reader.engine));
    return sl_run_samples_begin(&t->setup, p->samples, &t->samples);
}

static sl_status open_device(sl_trainer *t)
{
    const sl_prepared *p = &t->prepared;
    const sl_plan *plans[] = {p->plan, p->val_plan, p->sample_plan};
    sl_device_config config = {.threads = t->setup.threads, .seed = t->setup.seed, .ahead = p->ahead};
    for (int i = 0; i < SL_COUNT(plans); i++) {
        size_t extent[SL_TIER_COUNT];
        int64_t commands, events;
        if (!plans[i])
            continue;
        sl_plan_extent(plans[i], extent);
        sl_engine_needs(plans[i], &commands, &events);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            config.arena_bytes[tier] = SL_MAX(config.arena_bytes[tier], extent[tier]);
        config.max_commands = SL_MAX(config.max_commands, commands);
        config.max_events = SL_MAX(config.max_events, events);
    }
    memcpy(t->arena_bytes, config.arena_bytes, sizeof t->arena_bytes);
    /* Up to here the heap was all there was on the host, but for an arena touched ahead and the measuring's own, which are within the
     * budget; from here on it stands beside the arena. */
    t->heap_before_peak = sl_heap_peak_bytes() + sl_pages_ahead_bytes(p->ahead);
    sl_heap_peak_reset();
    SL_TRY(sl_device_open(t->setup.device, &config, &t->device));
    SL_TRY(open_side(t, p->program, p->plan, &t->train));
    sl_engine_set_peak_flops(t->train.engine, p->costs->peak_flops);
    SL_TRY(open_side(t, p->val_program, p->val_plan, &t->validation));
    return open_samples(t);
}

/* Before the first step: arenas are resident only where opening the device pins them. */
static void measure_base(sl_trainer *t)
{
    const sl_device *device = t->device;
    size_t known = sl_heap_bytes() + (device->class->pins_host ? t->arena_bytes[SL_TIER_HOST] : 0);
    size_t resident = sl_memory_resident().anonymous;
    t->base_bytes = resident > known ? resident - known : 0;
}

/* Every input that the steps read must be one that the data has. */
static sl_status check_inputs(const sl_trainer *t, const sl_program *program)
{
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++) {
        const sl_input_def *def = sl_input_of((sl_input_kind) kind);
        if (program->chunks[0].input[kind].rank && def->scope != SL_PER_STEP && !(t->source->kinds >> kind & 1u))
            return sl_fail(SL_E_USAGE, "the model reads %s, which the data does not have", def->name);
    }
    return SL_OK;
}

static sl_status allocate(sl_trainer *t)
{
    const sl_program *program = t->prepared.program, *validation = t->prepared.val_program;
    int64_t chunks = SL_MAX(program->n_chunks, validation ? validation->n_chunks : 0);
    SL_TRY(sl_alloc_aligned(&t->staging, (int64_t) sl_run_staging_bytes(program), 1, SL_ALIGN));
    SL_TRY(sl_alloc(&t->losses, chunks * program->n_losses, sizeof *t->losses));
    SL_TRY(sl_alloc(&t->loss, t->setup.steps, sizeof *t->loss));
    SL_TRY(sl_alloc(&t->times, SL_TIMES_KEPT, sizeof *t->times));
    return sl_alloc(&t->sorted, SL_TIMES_KEPT, sizeof *t->sorted);
}

static void weights_progress(void *trainer, double fraction)
{
    sl_hooks_progress(&((sl_trainer *) trainer)->job.hooks, SL_STAGE_WEIGHTS, fraction);
}

/* Below adapters: whether a checkpoint belongs to this model is known once its weights are there. */
static sl_status begin_base(sl_trainer *t)
{
    uint64_t hash;
    SL_TRY(sl_weights_begin(&t->setup, &t->store, &t->weights));
    SL_TRY(sl_store_hash_base(&t->store, &hash));
    snprintf(t->base, sizeof t->base, "%016" PRIx64, hash);
    return SL_OK;
}

static sl_status begin_or_resume(sl_trainer *t)
{
    sl_checkpoint found = {.progress = {.step = -1}};
    SL_TRY(sl_store_open(&t->store, t->prepared.program, sl_store_engine(t->train.engine)));
    t->store.progress = weights_progress, t->store.progress_context = t;
    t->identity = (sl_identity){.setup = &t->setup,
                                .data = t->source->identity,
                                .sample = t->source->sample,
                                .numerics = t->device->class->numerics(t->device),
                                .weights = t->weights.began,
                                .base = t->base};
    const bool adapters = t->setup.model.lora.rank > 0;
    if (adapters)
        SL_TRY(begin_base(t));
    if (t->setup.resume)
        SL_TRY(sl_checkpoint_find(&t->store, &t->identity, &found));
    if (found.progress.step < 0)
        return adapters ? sl_weights_begin_adapters(&t->setup, &t->store, &t->weights)
                        : sl_weights_begin(&t->setup, &t->store, &t->weights);
    SL_TRY(sl_checkpoint_load(&t->store, &found));
    sl_weights_resumed(found.path, found.progress.step, found.weights, &t->weights);
    t->progress = found.progress;
    t->first_step = found.progress.step;
    t->checkpoint_step = found.progress.step;
    memcpy(t->checkpoint, found.path, sizeof t->checkpoint);
    return SL_OK;
}

/* What takes no time and writes nothing. */
static sl_status begin(const sl_job *job, sl_trainer *t)
{
    t->val_step = t->checkpoint_step = t->samples.step = -1;
    SL_TRY(sl_options_copy(job->options, &t->options));
    t->job = (sl_job){t->options, job->hooks};
    SL_TRY(sl_setup_resolve(&t->job, &t->setup));
    t->setup.runs = true;
    SL_TRY(check_device(&t->setup));
    SL_TRY(open_data(t));
    SL_TRY(check_folder(t));
    return check_weights(t);
}

sl_status sl_trainer_check(const sl_job *job)
{
    sl_trainer *t;
    SL_TRY(sl_alloc(&t, 1, sizeof *t));
    sl_status status = begin(job, t);
    sl_trainer_destroy(t);
    return status;
}

sl_status sl_trainer_create(const sl_job *job, sl_trainer **out)
{
    sl_trainer *t;
    sl_status status;
    SL_TRY(sl_alloc(&t, 1, sizeof *t));
    SL_TRY_GOTO(begin(job, t), fail);
    SL_TRY_GOTO(make_folder(t), fail);
    SL_TRY_GOTO(sl_prepare(&t->setup, &t->prepared), fail);
    SL_TRY_GOTO(check_inputs(t, t->prepared.program), fail);
    SL_TRY_GOTO(open_folder(t), fail);
    double start = sl_clock_s();
    sl_hooks_progress(&t->job.hooks, SL_STAGE_MEMORY, 0);
    SL_TRY_GOTO(open_device(t), fail);
    SL_TRY_GOTO(allocate(t), fail);
    sl_hooks_progress(&t->job.hooks, SL_STAGE_MEMORY, 1);
    measure_base(t);
    t->memory_s = sl_clock_s() - start;
    sl_hooks_progress(&t->job.hooks, SL_STAGE_WEIGHTS, 0);
    SL_TRY_GOTO(begin_or_resume(t), fail);
    if (t->source->class->seek)
        SL_TRY_GOTO(t->source->class->seek(t->source, t->progress.position), fail);
    sl_hooks_progress(&t->job.hooks, SL_STAGE_WEIGHTS, 1);
    t->weights_s = sl_clock_s() - start - t->memory_s;
    /* A run that is done keeps the log of its last session, and an evaluation has none. */
    if (t->progress.step < t->setup.steps && !t->setup.program.forward_only)
        SL_TRY_GOTO(sl_run_event_start(t), fail);
    *out = t;
    return SL_OK;
fail:
    sl_trainer_destroy(t);
    return status;
}

void sl_trainer_destroy(sl_trainer *t)
{
    if (!t)
        return;
    sl_store_close(&t->store);
    sl_run_samples_end(&t->samples);
    sl_engine_destroy(t->validation.engine);
    sl_engine_destroy(t->train.engine);
    sl_device_close(t->device);
    sl_prepared_destroy(&t->prepared);
    sl_data_close(&t->setup, t->source);
    sl_events_close(t->events);
    sl_options_destroy(t->options);
    sl_free(t->staging);
    sl_free(t->losses);
    sl_free(t->loss);
    sl_free(t->times);
    sl_free(t->sorted);
    sl_text_free(&t->report);
    sl_free(t);
}

void sl_trainer_request_stop(sl_trainer *trainer)
{
    atomic_store_explicit(&trainer->stop, true, memory_order_relaxed);
}

sl_status sl_trainer_checkpoint(sl_trainer *t)
{
    if (!t->setup.out)
        return sl_fail(SL_E_USAGE, "a checkpoint needs a run folder: give --out");
    if (t->failed)
        return sl_fail(t->failed, "the run has failed: its state is not worth a checkpoint");
    if (t->checkpoint_step == t->progress.step && !t->altered)
        return SL_OK;
    double start = sl_clock_s();
    sl_hooks_progress(&t->job.hooks, SL_STAGE_CHECKPOINT, 0);
    SL_TRY(sl_checkpoint_write(&t->store, &t->identity, t->options, &t->progress, t->checkpoint));
    sl_hooks_progress(&t->job.hooks, SL_STAGE_CHECKPOINT, 1);
    t->checkpoint_step = t->progress.step;
    t->altered = false;
    return sl_run_event_checkpoint(t, sl_clock_s() - start);
}
