/*
 * One step: write data and step parameters, run the plan, read losses and norm. Nothing here allocates, and what the numbers
 * mean for the run (not finite, time to validate, time to checkpoint, time to stop) is decided after the device has finished.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/sized.h"
#include "train/run.h"

/* ---- data in, losses out ---- */

/* Held-out sequences need not fill their last batch. What fills it up counts for nothing. */
static void ignore_repeated(const sl_batch *batch, int64_t sequences)
{
    int64_t counted = SL_MIN(SL_MAX(sequences - batch->position, 0), batch->n_sequences);
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++) {
        const sl_batch_input *input = &batch->input[kind];
        if (!input->data || !sl_input_of((sl_input_kind) kind)->target)
            continue;
        int64_t count = sl_type_count(&input->type), first = count / batch->n_sequences * counted;
        for (int64_t i = first; i < count; i++)
            sl_dtype_store(input->type.dtype, input->data, i, input->type.dtype == SL_I32 ? SL_TARGET_IGNORED : 0);
    }
}

static size_t staging_bytes(const sl_type *type)
{
    return SL_ROUND_UP(sl_type_bytes(type), (size_t) SL_ALIGN);
}

size_t sl_run_staging_bytes(const sl_program *program)
{
    size_t bytes = 0;
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++) /* no chunk is longer than the first */
        bytes += staging_bytes(&program->chunks[0].input[kind]);
    return bytes;
}

static bool row_counts(const sl_batch_input *targets, int64_t row, int64_t each)
{
    bool indices = targets->type.dtype == SL_I32, counts = false;
    for (int64_t i = row * each; i < (row + 1) * each && !counts; i++)
        counts = indices ? ((const int32_t *) targets->data)[i] != SL_TARGET_IGNORED
                         : sl_dtype_load(targets->type.dtype, targets->data, i) != 0;
    return counts;
}

/* What the targets of a batch come to: rows that count, or the sum of what they count. */
static double count_targets(const sl_batch *batch, const sl_loss *loss)
{
    const sl_batch_input *targets = &batch->input[loss->targets];
    const float *weights = loss->weights >= 0 ? batch->input[loss->weights].data : NULL;
    int64_t rows = targets->type.dim[0], each = sl_type_count(&targets->type) / rows;
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += !row_counts(targets, i, each) ? 0 : weights ? (double) weights[i] : 1;
    return sum;
}

/* The bytes of a batch's text, where its source knows them; a repeated row's targets are ignored and stand for none. */
static sl_status count_text(sl_trainer *t, sl_split split, const sl_batch *batch)
{
    int64_t bytes = 0;
    if (sl_run_text_unknown(t, split) || !batch->input[SL_INPUT_TARGETS].data) {
        t->text_bytes = -1;
        return SL_OK;
    }
    SL_TRY(t->source->class->text_bytes(t->source, split, batch, &bytes));
    t->text_bytes += bytes;
    return SL_OK;
}

static sl_status fill_chunk(sl_trainer *t, const sl_run_side *side, sl_split split, int64_t position,
                            const sl_chunk *chunk)
{
    const sl_chunking *chunking = &side->program->config.chunking;
    bool sliced = chunking->chunk_tokens < chunking->seqlen;
    unsigned char *staging = t->staging;
    sl_batch batch = {.position = position + chunk->first_sequence,
                      .n_sequences = chunk->n_sequences,
                      .slice_offset = chunk->slice_offset,
                      .tokens_each = sliced ? chunk->tokens : chunking->seqlen};
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++) {
        sl_input_scope scope = sl_input_of((sl_input_kind) kind)->scope;
        bool written = scope == SL_PER_STEP || (scope == SL_PER_SEQUENCE && chunk->slice_offset > 0);
        if (!chunk->input[kind].rank || written)
            continue;
        batch.input[kind] = (sl_batch_input){staging, chunk->input[kind]};
        staging += staging_bytes(&chunk->input[kind]);
    }
    SL_TRY(t->source->class->fill(t->source, split, &batch));
    if (split == SL_SPLIT_VALIDATION)
        ignore_repeated(&batch, t->source->sequences[split]);
    SL_TRY(count_text(t, split, &batch));
    for (int32_t k = 0; k < side->program->n_losses; k++)
        t->counted[k] += count_targets(&batch, &side->program->losses[k]);
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++)
        if (batch.input[kind].data)
            SL_TRY(sl_engine_write(side->engine, chunk->data[kind], 0, batch.input[kind].data,
                                   sl_type_bytes(&batch.input[kind].type)));
    return SL_OK;
}

/* A step's loss is the mean of what its targets count, so its gradients are divided by that; without any there are none. */
static void set_loss_scales(const sl_trainer *t, const sl_program *program, sl_step_params *params)
{
    float scales[SL_MAX_LOSSES] = {0};
    for (int32_t k = 0; k < program->n_losses; k++)
        scales[k] = t->counted[k] != 0 ? (float) (program->losses[k].weight / t->counted[k]) : 0;
    params->loss_scale = scales[0];
    memcpy(params->further_loss_scales, scales + 1, sizeof params->further_loss_scales);
}

sl_status sl_run_fill(sl_trainer *t, const sl_run_side *side, sl_split split, int64_t position)
{
    memset(t->counted, 0, sizeof t->counted);
    t->text_bytes = 0;
    for (int32_t c = 0; c < side->program->n_chunks; c++)
        SL_TRY(fill_chunk(t, side, split, position, &side->program->chunks[c]));
    if (side->program->step_object < 0)
        return SL_OK;
    double updates = (double) (t->progress.updates + 1);
    sl_step_params params = {
        .learning_rate = (float) sl_schedule_at(&t->setup.schedule, t->progress.step + 1),
        .clip = (float) t->setup.clip,
        .step = (uint32_t) (t->progress.step + 1),
        .seed_lo = (uint32_t) t->setup.seed,
        .seed_hi = (uint32_t) (t->setup.seed >> 32),
    };
    set_loss_scales(t, side->program, &params);
    sl_program_correct(side->program, updates, &params);
    return sl_engine_write(side->engine, side->program->step_object, 0, &params, sizeof params);
}

/* Chunks are added up in their own order and in double, so the grouping into rounds does not show. */
sl_status sl_run_losses(sl_trainer *t, const sl_run_side *side, double sums[SL_MAX_LOSSES],
                        double counts[SL_MAX_LOSSES])
{
    const sl_program *program = side->program;
    SL_TRY(sl_engine_read(side->engine, program->losses_object, 0, t->losses,
                          (size_t) (program->n_losses * program->n_chunks) * sizeof(float)));
    for (int32_t k = 0; k < program->n_losses; k++) {
        double sum = 0;
        for (int32_t c = 0; c < program->n_chunks; c++)
            sum += (double) t->losses[k * program->n_chunks + program->chunks[c].loss_slot];
        sums[k] += sum;
        counts[k] += t->counted[k];
    }
    return SL_OK;
}

const char *sl_run_text_unknown(const sl_trainer *t, sl_split split)
{
    return t->source->class->text_bytes ? t->source->text_unknown[split] : "the data's source does not know its text";
}

double sl_run_mean_losses(sl_trainer *t, const sl_program *program, const double sums[SL_MAX_LOSSES],
                          const double counts[SL_MAX_LOSSES])
{
    double total = 0;
    for (int32_t k = 0; k < program->n_losses; k++) {
        t->step_losses[k] = counts[k] != 0 ? sums[k] / counts[k] : 0;
        total += program->losses[k].weight * t->step_losses[k];
    }
    return total;
}

/* ---- steps that fail ---- */

static void describe_checkpoint(const sl_trainer *t, const char *what, char out[1200])
{
    if (t->checkpoint_step >= 0)
        snprintf(out, 1200, "%s is %s", what, t->checkpoint);
    else
        snprintf(out, 1200, "there is no checkpoint");
}

/* A step that the device did not finish may have updated some parameters and not others: from here on nothing of this run is
 * written, so its last checkpoint stays what a resume finds. */
static sl_status fail_run(sl_trainer *t, sl_status status, int64_t step, const char *what)
{
    char message[800], last[1200];
    snprintf(message, sizeof message, "%s", sl_error_message());
    describe_checkpoint(t, "the last checkpoint, which --resume goes on from,", last);
    t->failed = status;
    sl_run_event_end(t, "device error");
    return sl_fail(status, "step %" PRId64 "%s: %s; %s", step, what, message, last);
}

sl_status sl_run_engine(sl_trainer *t, const sl_run_side *side)
{
    const bool trains = side == &t->train;
    sl_status status = sl_engine_step(side->engine);
    return status == SL_OK ? SL_OK : fail_run(t, status, t->progress.step + trains, trains ? "" : ", validation");
}

static sl_status not_finite(sl_trainer *t, const sl_step_result *result)
{
    sl_culprit culprit = {0};
    char where[480] = "it did not happen again when the step was repeated task by task", last[1200];
    t->failed = SL_E_NOT_FINITE;
    if (sl_engine_diagnose(t->train.engine, &culprit) == SL_OK && culprit.found && culprit.task < 0)
        snprintf(where, sizeof where, "%s itself is %s at element %" PRId64 ", so an update went too far",
                 culprit.tensor_name, culprit.value, culprit.element);
    else if (culprit.found)
        snprintf(where, sizeof where, "task %s made %s in %s at element %" PRId64, culprit.task_name, culprit.value,
                 culprit.tensor_name, culprit.element);
    describe_checkpoint(t, "the last good checkpoint", last);
    sl_run_event_end(t, "not finite");
    return sl_fail(SL_E_NOT_FINITE,
                   "step %" PRId64
                   " is not finite (loss %g, gradient norm %g): %s; %s; try a lower --lr, --clip, or --on-nan skip",
                   result->step, result->loss, result->grad_norm, where, last);
}

/* ---- the step ---- */

static sl_status train_once(sl_trainer *t, sl_step_result *result)
{
    const sl_run_side *side = &t->train;
    double start = sl_clock_s();
    double sums[SL_MAX_LOSSES] = {0}, counts[SL_MAX_LOSSES] = {0};
    float gate[4] = {1, 0, 0, 0}; /* factor, norm, skip */
    SL_TRY(sl_run_fill(t, side, SL_SPLIT_TRAIN, t->progress.position));
    t->data_s = sl_clock_s() - start;
    SL_TRY(sl_run_engine(t, side));
    SL_TRY(sl_run_losses(t, side, sums, counts));
    result->loss = sl_run_mean_losses(t, side->program, sums, counts);
    t->bits_per_byte = sl_run_bits_per_byte(sums[0], t->text_bytes);
    if (side->program->gate_object >= 0)
        SL_TRY(sl_engine_read(side->engine, side->program->gate_object, 0, gate, sizeof gate));
    result->step = t->progress.step + 1;
    result->grad_norm = (double) gate[1];
    result->learning_rate = sl_schedule_at(&t->setup.schedule, result->step);
    if (isnan(result->loss))
        result->loss = (double) NAN; /* without the sign that printf would show */
    if (isnan(result->grad_norm))
        result->grad_norm = (double) NAN;
    result->seconds = sl_clock_s() - start;
    result->tokens_per_s = (double) side->program->tokens / result->seconds;
    bool finite = isfinite(result->loss) && isfinite(result->grad_norm) && gate[2] == 0;
    if (!finite && t->setup.on_nan == SL_ON_NAN_STOP)
        return not_finite(t, result);
    result->skipped = !finite;
    return SL_OK;
}

static void account(sl_trainer *t, const sl_step_result *result)
{
    int64_t run = t->progress.step - t->first_step; /* steps of this run so far */
    if (run < t->setup.steps)
        t->loss[run] = result->loss;
    if (run == 0)
        t->first_time = result->seconds;
    else
        t->times[t->n_times++ % SL_TIMES_KEPT] = result->seconds;
    t->progress.step++;
    t->progress.position += t->setup.program.chunking.sequences;
    t->progress.updates += !result->skipped;
    t->skipped += result->skipped;
}

static bool due(int64_t every, int64_t step, bool last)
{
    return every >= 0 && (last || (every > 0 && step % every == 0));
}

/* Weights that yield no logits are worth a line: the next step's loss will say what became of them. */
static sl_status make_sample(sl_trainer *t)
{
    sl_hooks_progress(&t->job.hooks, SL_STAGE_SAMPLE, 0);
    sl_status status = sl_run_samples_make(&t->samples, t->progress.step);
    if (status == SL_E_NOT_FINITE)
        sl_warn("the sample after step %" PRId64 " has ended early: %s", t->progress.step, sl_error_message());
    else if (status != SL_OK)
        return fail_run(t, status, t->progress.step, ", sample");
    sl_hooks_progress(&t->job.hooks, SL_STAGE_SAMPLE, 1);
    return sl_run_event_sample(t);
}

sl_status sl_trainer_step(sl_trainer *t, sl_step_result *out)
{
    sl_step_result result = SL_SIZED(sl_step_result);
    SL_TRY(sl_sized_check(out, "sl_step_result"));
    if (t->failed)
        return sl_fail(t->failed, "the run has failed at step %" PRId64 " and cannot go on; resume its last checkpoint",
                       t->progress.step + 1);
    if (t->progress.step >= t->setup.steps)
        return sl_fail(SL_E_USAGE, "all %" PRId64 " steps are done: give more --steps to go on", t->setup.steps);
    if (atomic_load_explicit(&t->stop, memory_order_relaxed)) {
        bool between_steps = !t->interrupted; /* else the step that saw it has done all this */
        t->interrupted = true;
        if (between_steps && t->setup.out && t->progress.step > 0 && t->setup.checkpoint_every >= 0)
            SL_TRY(sl_trainer_checkpoint(t));
        if (between_steps)
            SL_TRY(sl_run_event_end(t, "interrupted"));
        return sl_fail(SL_E_INTERRUPTED, "stopped as asked after step %" PRId64 "%s", t->progress.step,
                       t->checkpoint_step == t->progress.step ? "; go on with --resume" : "");
    }
    SL_TRY(train_once(t, &result));
    account(t, &result);
    if (result.skipped)
        sl_warn("step %" PRId64 " was left out: loss %g, gradient norm %g", result.step, result.loss, result.grad_norm);
    bool stop = atomic_load_explicit(&t->stop, memory_order_relaxed);
    bool last = t->progress.step == t->setup.steps;
    result.done = last || stop;
    SL_TRY(sl_run_event_step(t, &result));
    if (result.done || t->progress.step == t->first_step + 2)
        SL_TRY(sl_run_event_timeline(t));
    if (t->validation.engine && due(t->setup.val_every, t->progress.step, last) && !stop)
        SL_TRY(sl_trainer_validate(t, &t->val_loss));
    if (t->samples.reader.engine && due(t->setup.sample_every, t->progress.step, last) && !stop)
        SL_TRY(make_sample(t));
    if (t->setup.out && due(t->setup.checkpoint_every, t->progress.step, result.done))
        SL_TRY(sl_trainer_checkpoint(t));
    t->interrupted = stop && !last;
    if (result.done)
        SL_TRY(sl_run_event_end(t, t->interrupted ? "interrupted" : "done"));
    return sl_sized_put(out, &result, sizeof result, "sl_step_result");
}

sl_status sl_trainer_validate(sl_trainer *t, double *out)
{
    const sl_run_side *side = &t->validation;
    if (!side->engine)
        return sl_fail(SL_E_USAGE, "the job has no validation: give --val-every and --val-data or --val-share");
    double start = sl_clock_s(), sums[SL_MAX_LOSSES] = {0}, counts[SL_MAX_LOSSES] = {0};
    int64_t each = t->setup.program.chunking.sequences;
    int64_t sequences = t->source->sequences[SL_SPLIT_VALIDATION];
    int64_t batches = SL_MIN(t->setup.val_steps, SL_DIV_UP(sequences, each)), bytes = 0;
    for (int64_t b = 0; b < batches; b++) {
        sl_hooks_progress(&t->job.hooks, SL_STAGE_VALIDATION, (double) b / (double) batches);
        SL_TRY(sl_run_fill(t, side, SL_SPLIT_VALIDATION, b * each));
        bytes = t->text_bytes < 0 ? -1 : bytes + t->text_bytes;
        SL_TRY(sl_run_engine(t, side));
        SL_TRY(sl_run_losses(t, side, sums, counts));
    }
    sl_hooks_progress(&t->job.hooks, SL_STAGE_VALIDATION, 1);
    *out = t->val_loss = sl_run_mean_losses(t, side->program, sums, counts);
    t->bits_per_byte = sl_run_bits_per_byte(sums[0], bytes);
    t->val_step = t->progress.step;
    return sl_run_event_validation(t, sl_clock_s() - start);
}
