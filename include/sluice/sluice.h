/*
 * Sluice: train networks larger than the accelerator's memory at nearly the speed they would have if they fitted.
 *
 * The whole public C API. Four rules:
 *  - A function that can fail returns sl_status; sl_error_message() then tells, in one sentence, what was needed,
 *    what there was and what to try. The message belongs to the calling thread and lives until its next failure.
 *  - Outputs come last and are set only on success. Strings handed out belong to the object they came from.
 *  - create/destroy come in pairs; destroy accepts NULL.
 *  - The library never prints and never exits. It reports through sl_log_set().
 *
 * A training run (cc example.c -lsluice):
 *
 *     #include <sluice/sluice.h>
 *     #include <stdio.h>
 *
 *     static sl_status train(sl_job *job, sl_trainer **trainer)
 *     {
 *         sl_step_result result = {0};
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

typedef enum sl_log_level { SL_LOG_DEBUG, SL_LOG_INFO, SL_LOG_WARN, SL_LOG_ERROR } sl_log_level;
typedef void (*sl_log_fn)(void *user, sl_log_level level, const char *message);
/* Where log lines go; NULL silences. Default: silence. */
SL_API void sl_log_set(sl_log_fn fn, void *user, sl_log_level least);

/* A job: what to train, on what data, within which budgets. Keys and values are the long options of `sluice train`
 * without the dashes; `sluice train --help` documents them. Unknown keys are errors. */
typedef struct sl_job sl_job;
SL_API sl_status sl_job_create(sl_job **job);
SL_API void sl_job_destroy(sl_job *job);
SL_API sl_status sl_job_set(sl_job *job, const char *key, const char *value);

/* A plan: every byte and every copy of a step, decided before the first one. Works without the accelerator. */
typedef struct sl_prediction sl_prediction;
SL_API sl_status sl_prediction_create(const sl_job *job, sl_prediction **prediction);
SL_API void sl_prediction_destroy(sl_prediction *prediction);
/* The object that `sluice plan --json` prints. */
SL_API const char *sl_prediction_json(const sl_prediction *prediction);

typedef struct sl_step_result {
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
/* The object that `sluice train --json` prints, for the steps run so far. */
SL_API sl_status sl_trainer_report(sl_trainer *trainer, const char **json);

#ifdef __cplusplus
}
#endif
#endif
