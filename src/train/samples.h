/*
 * Inside train: texts that the model makes while it is trained. The program that makes a token is planned beside the training step, as
 * validation is: it reads the weights where they are, on the same device, and its K/V lie where the step has its activations. So
 * a sample moves no weight, has a place in both budgets, and leaves no bit behind.
 *
 *     between steps    | weights, optimizer state | K/V |      a token's activations       free |      sample_plan
 *     during a step    | weights, optimizer state | activations, gradients, workspaces          |      plan
 *
 * The prompt is read token by token, by the same program: a program of its own would need a second plan for a text of a line.
 */
#ifndef SL_TRAIN_SAMPLES_H
#define SL_TRAIN_SAMPLES_H

#include "text/continuation.h"
#include "train/job.h"
#include "train/reader.h"

/* What samples begin with, known before anything is planned. */
typedef struct sl_samples {
    sl_words *words;
    sl_tokens prompt;
    int64_t most;      /* tokens to make */
    size_t heap_bytes; /* all this, what a sampler needs, and the texts */
} sl_samples;

/* Refuses prompts that are no text for this model. */
sl_status sl_samples_open(const sl_setup *setup, sl_samples **samples);
void sl_samples_close(sl_samples *samples);

/* During a run. */
typedef struct sl_run_samples {
    sl_reader reader; /* engine NULL: no samples are made */
    const char *model;
    sl_samples *of;
    sl_sampler *sampler;
    sl_tokens made;
    sl_text_stream stream;
    float *logits;
    int32_t staging[2];
    int64_t read, step; /* step: after which the last sample was made; -1: none yet */
    const char *why;    /* it ended */
    double seconds;
} sl_run_samples;

sl_status sl_run_samples_begin(const sl_setup *setup, sl_samples *of, sl_run_samples *run);
void sl_run_samples_end(sl_run_samples *run);
/* Makes one, after `step`. SL_E_NOT_FINITE where the weights yield no logits. */
sl_status sl_run_samples_make(sl_run_samples *run, int64_t step);
/* "" before the first. */
const char *sl_run_samples_text(const sl_run_samples *run);

#endif
