/*
 * Sluice: train networks larger than the accelerator's memory at nearly the speed they would have if they fitted.
 *
 * The whole public C API. Rules:
 *  - A function that can fail returns sl_status; sl_error_message() then tells, in one sentence, what was needed,
 *    what there was and what to try. The message belongs to the calling thread and lives until its next failure.
 *  - Outputs come last and are set only on success. Strings handed out belong to the object they came from.
 *  - create/destroy come in pairs; destroy accepts NULL.
 *  - The library never prints and never exits. It reports through sl_log_set().
 *  - Structs begin with their size, so that later versions can append fields: `sl_step_result r = SL_SIZED(sl_step_result);`.
 *    A caller built with an older header gets the fields it knows; with a newer one, the fields that this library does
 *    not know are zero where it fills them in, and must be zero where it reads them.
 *
 * Threads. Calls on one object must not overlap, from whatever threads they come; calls on different objects may.
 * Two functions are exempt: sl_trainer_request_stop() may be called from any thread and from a signal handler, and
 * sl_log_set() from any thread. Callbacks are never called concurrently with each other by one object. Progress, data
 * and model callbacks run on the thread whose call needs them; the log callback may run on any thread of the library, one line at
 * a time. A callback must not call functions on the object that is calling it, sl_trainer_request_stop() excepted.
 * The host budget counts the allocations of the whole process: run one trainer at a time.
 *
 * A training run (cc example.c -lsluice):
 *
 *     #include <sluice/sluice.h>
 *     #include <stdio.h>
 *
 *     static sl_status train(sl_job *job, sl_trainer **trainer)
 *     {
 *         sl_step_result result = SL_SIZED(sl_step_result);
 *         sl_status status = sl_job_set(job, "model", "byte-nano");
 *         if (status == SL_OK) status = sl_job_set(job, "data", "corpus/");
 *         if (status == SL_OK) status = sl_job_set(job, "steps", "20");
 *         if (status == SL_OK) status = sl_job_set(job, "device-mem", "64MiB");
 *         if (status == SL_OK) status = sl_trainer_create(job, trainer);
 *         while (status == SL_OK && !result.done) {
 *             status = sl_trainer_step(*trainer, &result);
 *             if (status == SL_OK) printf("step %lld: loss %.4f\n", (long long) result.step, result.loss);
 *         }
 *         return status;
 *     }
 *
 *     int main(void)
 *     {
 *         sl_job *job = NULL;
 *         sl_trainer *trainer = NULL;
 *         sl_status status = sl_job_create(&job);
 *         if (status == SL_OK) status = train(job, &trainer);
 *         if (status != SL_OK) fprintf(stderr, "%s\n", sl_error_message());
 *         sl_trainer_destroy(trainer);
 *         sl_job_destroy(job);
 *         return status != SL_OK;
 *     }
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_API __attribute__((visibility("default")))

#define SL_VERSION_MAJOR 0
#define SL_VERSION_MINOR 1
#define SL_VERSION_PATCH 0
#define SL_VERSION "0.1.0"

/* name, what it means. The command line turns USAGE into exit code 2, DOES_NOT_FIT into 3, every other failure into 1. */
#define SL_STATUS_LIST(X)                                     \
    X(OK, "success")                                          \
    X(E_USAGE, "wrong option, value or configuration key")    \
    X(E_DOES_NOT_FIT, "the job does not fit the budgets")     \
    X(E_MEMORY, "the system is out of memory")                \
    X(E_IO, "a file could not be read or written")            \
    X(E_FORMAT, "a file is damaged or not what it claims")    \
    X(E_UNSUPPORTED, "not supported by this build or device") \
    X(E_DEVICE, "the device reported an error")               \
    X(E_NOT_FINITE, "a value became NaN or infinite")         \
    X(E_INTERRUPTED, "stopped by the user")                   \
    X(E_INTERNAL, "a bug in Sluice")

typedef enum sl_status {
#define X(name, text) SL_##name,
    SL_STATUS_LIST(X)
#undef X
} sl_status;

SL_API const char *sl_version(void);
SL_API const char *sl_status_name(sl_status status);
SL_API const char *sl_error_message(void);
/* For callbacks: sets the message of a failure and returns `status`. The library passes both on to whoever called it. */
SL_API sl_status sl_error_set(sl_status status, const char *message);

/* Initializer of a struct that begins with its size. */
#define SL_SIZED(type)              \
    {                               \
        .struct_size = sizeof(type) \
    }

/* ---- log and progress ------------------------------------------------------------------------------------------- */

typedef enum sl_log_level { SL_LOG_DEBUG, SL_LOG_INFO, SL_LOG_WARN, SL_LOG_ERROR } sl_log_level;
typedef void (*sl_log_fn)(void *user, sl_log_level level, const char *message);
/* Where log lines go; NULL silences. Default: silence. */
SL_API void sl_log_set(sl_log_fn fn, void *user, sl_log_level least);

/* Work that takes seconds to minutes and is no step. */
#define SL_STAGE_LIST(X)                          \
    X(PLAN, "planning")                           \
    X(MEASURE, "measuring the machine")           \
    X(MEMORY, "mapping memory")                   \
    X(WEIGHTS, "loading or initializing weights") \
    X(VALIDATION, "validating")                   \
    X(CHECKPOINT, "writing a checkpoint")         \
    X(SAMPLE, "generating a sample")

typedef enum sl_stage {
#define X(name, text) SL_STAGE_##name,
    SL_STAGE_LIST(X)
#undef X
} sl_stage;

SL_API const char *sl_stage_name(sl_stage stage); /* "planning" */
/* `fraction` of the stage is done: 0 when it begins, 1 when it has succeeded. Measuring happens within planning. */
typedef void (*sl_progress_fn)(void *user, sl_stage stage, double fraction);

/* ---- job -------------------------------------------------------------------------------------------------------- */

/* What to train, on what data, within which budgets. Keys and values are the long options of `sluice train` without the
 * dashes. Unknown keys are errors. Plans and trainers copy the job: it may be destroyed once they are created. */
typedef struct sl_job sl_job;
SL_API sl_status sl_job_create(sl_job **job);
SL_API void sl_job_destroy(sl_job *job);
SL_API sl_status sl_job_set(sl_job *job, const char *key, const char *value);
/* The value in force as text, valid until the next sl_job_set; NULL: there is none, not even a default. */
SL_API sl_status sl_job_get(const sl_job *job, const char *key, const char **value);
/* NULL: no progress is reported. */
SL_API sl_status sl_job_set_progress(sl_job *job, sl_progress_fn fn, void *user);

/* A sequence that a data callback fills. */
typedef struct sl_sequence {
    size_t struct_size;
    int64_t index;  /* which one: 0 to sequences - 1, of validation data 0 to val_sequences - 1 */
    int validation; /* 1: of the validation data */
    int64_t epoch;  /* passes over the training data before this one */
    int64_t seqlen;
    int32_t *tokens; /* to fill: seqlen + 1. Token i + 1 is the target of token i */
    float *weights;  /* of the seqlen targets in the loss, 1 unless set; NULL unless the data is weighted */
} sl_sequence;

/* Runs within sl_trainer_step and sl_trainer_validate. The content depends on index, epoch and `validation` alone: a
 * resumed run, and a step that is repeated, ask again. A failure is passed on with the message of sl_error_set(), and
 * the step can be tried again. */
typedef sl_status (*sl_data_fn)(void *user, sl_sequence *sequence);

typedef struct sl_data {
    size_t struct_size;
    sl_data_fn read;
    void *user;
    const char *identity;  /* of the data, at most 47 bytes: written into checkpoints, and a resume needs the same */
    int64_t sequences;     /* of training data in an epoch, 1 to 2^48. A stream without end has 2^48 and is in order */
    int64_t val_sequences; /* 0: `val-every` holds out the last `val-share` of `sequences` */
    int in_order;          /* 0: every epoch has an order of its own, which the seed fixes */
    int weighted;          /* the callback sets weights: 0 for what does not count */
} sl_data;
/* Data from a callback instead of the options `data` and `val-data`. The job keeps a copy. NULL: files again. */
SL_API sl_status sl_job_set_data(sl_job *job, const sl_data *data);

typedef enum sl_option_type {
    SL_OPTION_STRING,
    SL_OPTION_INTEGER,
    SL_OPTION_NUMBER,
    SL_OPTION_BYTES,  /* "64MiB" */
    SL_OPTION_BUDGET, /* bytes, or a percentage of what the job takes without budgets */
    SL_OPTION_FLAG,   /* "true", "false" */
    SL_OPTION_CHOICE
} sl_option_type;

typedef struct sl_option_info {
    size_t struct_size;
    const char *name; /* the key */
    sl_option_type type;
    const char *values;        /* "N", "BYTES"; of a choice "f32|bf16|bf16-master" */
    const char *default_value; /* NULL: none, or it follows from other options, as the help says */
    const char *group, *help;
} sl_option_info;

/* The options of a job, in the order of --help: index 0 to count - 1. */
SL_API int64_t sl_option_count(void);
SL_API sl_status sl_option_get(int64_t index, sl_option_info *info);

/* ---- plan ------------------------------------------------------------------------------------------------------- */

/* Every byte and every copy of a step, decided before the first one. Works without the accelerator. That a job does not fit is
 * an answer, not a failure. */
typedef struct sl_prediction sl_prediction;
SL_API sl_status sl_prediction_create(const sl_job *job, sl_prediction **prediction);
SL_API void sl_prediction_destroy(sl_prediction *prediction);
/* The object that `sluice plan --json` prints. */
SL_API const char *sl_prediction_json(const sl_prediction *prediction);

typedef struct sl_prediction_figures {
    size_t struct_size;
    int feasible;                                      /* 0: the peaks, times and `limit` below are zero */
    const char *why_not;                               /* one sentence when not feasible, else NULL */
    size_t device_budget_bytes, host_budget_bytes;     /* SIZE_MAX: not limited */
    size_t device_peak_bytes, host_peak_bytes;         /* what the run will take */
    size_t device_min_bytes, host_min_bytes;           /* smallest budget with the other as given; 0: none would do */
    size_t device_both_bytes, host_both_bytes;         /* where neither would: budgets that do together; else 0 */
    double step_s, tokens_per_s, mfu;                  /* predicted */
    double lower_bound_s;                              /* no plan within these budgets has a shorter step */
    const char *limit;                                 /* what holds the step back most */
    double device_to_host_bytes, host_to_device_bytes; /* copied in a step */
    double recomputed;                                 /* arithmetic done twice, as a share of the step's */
    double plan_s;                                     /* planning took this long */
    const char *costs;                                 /* "roofline h200", "measured cpu avx512" */
    const char *device, *precision;
    int64_t parameters, seqlen, tokens_per_step, chunks, rounds;
} sl_prediction_figures;

SL_API sl_status sl_prediction_get(const sl_prediction *prediction, sl_prediction_figures *figures);

/* ---- trainer ---------------------------------------------------------------------------------------------------- */

typedef struct sl_step_result {
    size_t struct_size;
    int64_t step;     /* 1-based; steps before a resume count */
    double loss;      /* mean over the step's target tokens */
    double grad_norm; /* global norm before clipping; 0 when not computed */
    double learning_rate;
    double seconds;
    double tokens_per_s;
    int skipped; /* 1: not finite and `on-nan` is `skip`; the weights did not change */
    int done;    /* 1: this was the last step */
} sl_step_result;

/* A training run. It owns the device memory, the host memory and the run's files. */
typedef struct sl_trainer sl_trainer;
SL_API sl_status sl_trainer_create(const sl_job *job, sl_trainer **trainer);
SL_API void sl_trainer_destroy(sl_trainer *trainer);
SL_API sl_status sl_trainer_step(sl_trainer *trainer, sl_step_result *result);
SL_API sl_status sl_trainer_checkpoint(sl_trainer *trainer);
/* Mean loss over the validation data (val-steps batches, always the same, no sequence twice). SL_E_USAGE: the job has none. */
SL_API sl_status sl_trainer_validate(sl_trainer *trainer, double *loss);
/* Any thread, and async-signal-safe. The step under way finishes and writes a checkpoint (where there is a run folder); its
 * result has `done` set. A further sl_trainer_step returns SL_E_INTERRUPTED. */
SL_API void sl_trainer_request_stop(sl_trainer *trainer);
/* The object that `sluice train --json` prints, for the steps run so far. */
SL_API sl_status sl_trainer_report(sl_trainer *trainer, const char **json);

typedef struct sl_trainer_figures {
    size_t struct_size;
    int64_t first_step, step, steps; /* the run began after `first_step`, stands after `step` of `steps` */
    int64_t skipped;                 /* steps that were not finite */
    double loss;                     /* of the last step; NaN before the first */
    double val_loss;                 /* NaN before the first validation */
    int64_t val_step;                /* after which that was; -1: none yet */
    int64_t checkpoint_step;         /* of the newest durable checkpoint; -1: none */
    const char *checkpoint;          /* its folder or NULL */
    int interrupted;                 /* sl_trainer_request_stop ended the run */
    int64_t parameters, tokens_per_step;
    double epoch;                                   /* passes over the data so far */
    double step_s, tokens_per_s, mfu, seconds_left; /* at the median pace */
    double predicted_step_s, predicted_tokens_per_s;
    size_t device_budget_bytes, host_budget_bytes; /* SIZE_MAX: not limited */
    size_t device_peak_bytes, host_peak_bytes;     /* measured so far */
    const char *weights;                           /* where they came from */
    const char *device, *precision, *costs, *limit;
    int64_t sample_step; /* after which the last sample was made (`sample-every`); -1: none yet */
    const char *sample;  /* its text, without the prompt; valid until the next step */
} sl_trainer_figures;

SL_API sl_status sl_trainer_get(const sl_trainer *trainer, sl_trainer_figures *figures);

/* ---- parameters ------------------------------------------------------------------------------------------------- */

/* Between steps, wherever the plan keeps a parameter. Names, shapes and order of elements are those of model.safetensors
 * in a checkpoint: Hugging Face's. */
typedef struct sl_parameter_info {
    size_t struct_size;
    const char *name;        /* "model.layers.3.self_attn.q_proj.weight" */
    const char *option_name; /* what `freeze` and `optimizer-for` match: "layers.3.qkv", of which it may be a part */
    const char *dtype;       /* as it is stored: "f32", "bf16" */
    int64_t rows, columns;   /* columns 0: a vector */
    int64_t count;           /* elements */
    size_t stored_bytes;     /* of all elements in `dtype` */
    int trainable;           /* 0: frozen */
} sl_parameter_info;

/* Index 0 to count - 1. */
SL_API int64_t sl_trainer_parameter_count(const sl_trainer *trainer);
SL_API sl_status sl_trainer_parameter(const sl_trainer *trainer, int64_t index, sl_parameter_info *info);

typedef enum sl_parameter_format {
    SL_PARAMETER_F32,   /* floats: of the f32 master weight where the precision keeps one */
    SL_PARAMETER_STORED /* bytes in the parameter's dtype, as in model.safetensors */
} sl_parameter_format;

/* All elements, in row-major order; `bytes` is the size of `values` and must be that of the parameter in this format. */
SL_API sl_status sl_trainer_read_parameter(sl_trainer *trainer, const char *name, sl_parameter_format format,
                                           void *values, size_t bytes);
/* Sets the weight, rounded to its dtype, and the master weight. The optimizer's moments stay. SL_E_NOT_FINITE: a value is
 * NaN or infinite, or becomes so in the dtype; nothing is written then. */
SL_API sl_status sl_trainer_write_parameter(sl_trainer *trainer, const char *name, sl_parameter_format format,
                                            const void *values, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
