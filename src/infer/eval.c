/*
 * Evaluation is the trainer's forward pass over all of the data (train/evaluate.c): the same program, planner and engine as validation,
 * with a job whose step has no backward. What is here are its options and the figures that people compare.
 *
 *     perplexity = e^loss        bits per byte = sum of the losses / ln 2 / bytes of the text (data/encoding.h)
 *
 * Perplexities of models with other tokenizers do not compare, bits per byte do.
 */
#include "infer/eval.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "infer/options.h"
#include "train/weights.h"

static sl_option options[SL_INFER_OPTIONS];
static int64_t n_options;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum { STEP_TOKENS = 16384 }; /* enough arithmetic for weights that cross a link once a step */

static void fill_table(void)
{
    static const char group[] = "Model and data";
    sl_infer_take(options, &n_options, "model", group,
                  "A Hugging Face folder with its weights, the folder of a run (its newest checkpoint), or a preset or "
                  "config.json together with --init-from.");
    sl_infer_take(options, &n_options, "init-from", group, NULL);
    sl_infer_take(options, &n_options, "data", group,
                  "What to evaluate, all of it and in order: files or folders of text, records or token shards, as for "
                  "sluice train.");
    static const char *const as_in_training[] = {"data-format", "data-field", "tokenizer", "train-on", "cache"};
    for (int64_t i = 0; i < SL_COUNT(as_in_training); i++)
        sl_infer_take(options, &n_options, as_in_training[i], group, NULL);
    sl_infer_take(options, &n_options, "seqlen", group,
                  "Tokens of a sequence: each one is predicted from those before it in its sequence. What is left "
                  "behind the last whole sequence is not evaluated.");
    sl_infer_take(options, &n_options, "tokens-per-step", group,
                  "Tokens that one pass over the weights evaluates, a multiple of --seqlen. Default: about 16384.");
    sl_infer_take(options, &n_options, "chunk-tokens", group, NULL);
    sl_infer_take(options, &n_options, "mask-documents", group, NULL);
    sl_infer_take(options, &n_options, "document-token", group, NULL);
    sl_infer_take_machine(options, &n_options);
}

const sl_option *sl_eval_table(int64_t *count)
{
    pthread_once(&once, fill_table);
    *count = n_options;
    return options;
}

struct sl_eval {
    sl_job *job;
    sl_trainer *trainer;
};

static sl_status set_step(const sl_options *given, sl_job *job)
{
    char tokens[32];
    int64_t seqlen = sl_options_i64(given, "seqlen");
    if (sl_options_is_set(given, "tokens-per-step") || seqlen < 1)
        return SL_OK;
    snprintf(tokens, sizeof tokens, "%" PRId64, SL_MAX(STEP_TOKENS / seqlen, 1) * seqlen);
    return sl_job_set(job, "tokens-per-step", tokens);
}

/* A figure of random weights would pass for the model's. */
static sl_status check_weights(const sl_job *job)
{
    sl_setup setup;
    char path[1024];
    SL_TRY(sl_setup_resolve(job, &setup));
    SL_TRY(sl_weights_find(&setup, path));
    return path[0] ? SL_OK
                   : sl_fail(SL_E_USAGE,
                             "model %s has no weights to evaluate: give --model a folder that holds them, or "
                             "--init-from",
                             setup.model.name);
}

sl_status sl_eval_create(const sl_options *given, sl_progress_fn progress, void *user, sl_eval **out)
{
    sl_eval *eval;
    sl_status status;
    SL_TRY(sl_alloc(&eval, 1, sizeof *eval));
    SL_TRY_GOTO(sl_infer_job(given, &eval->job), fail);
    SL_TRY_GOTO(set_step(given, eval->job), fail);
    SL_TRY_GOTO(sl_job_set_progress(eval->job, progress, user), fail);
    eval->job->hooks.forward_only = true;
    SL_TRY_GOTO(check_weights(eval->job), fail);
    SL_TRY_GOTO(sl_trainer_create(eval->job, &eval->trainer), fail);
    *out = eval;
    return SL_OK;
fail:
    sl_eval_destroy(eval);
    return status;
}

void sl_eval_destroy(sl_eval *eval)
{
    if (!eval)
        return;
    sl_trainer_destroy(eval->trainer);
    sl_job_destroy(eval->job);
    sl_free(eval);
}

void sl_eval_request_stop(sl_eval *eval)
{
    sl_trainer_request_stop(eval->trainer);
}

sl_status sl_eval_run(sl_eval *eval, sl_eval_result *out)
{
    sl_evaluation found;
    SL_TRY(sl_trainer_evaluate(eval->trainer, &found));
    *out = (sl_eval_result){
        .loss = found.loss,
        .perplexity = exp(found.loss),
        .bits_per_byte = found.bytes > 0 ? found.nats / log(2) / (double) found.bytes : (double) NAN,
        .text_unknown = found.text_unknown,
        .tokens = found.targets,
        .bytes = found.bytes,
        .sequences = found.sequences,
        .seconds = found.seconds,
        .tokens_per_s = found.targets / found.seconds,
    };
    return SL_OK;
}

void sl_eval_look(const sl_eval *eval, sl_trainer_view *view)
{
    sl_trainer_look(eval->trainer, view);
}

void sl_eval_put(const sl_eval *eval, const sl_eval_result *r, sl_json_writer *w)
{
    sl_trainer_view v;
    sl_trainer_look(eval->trainer, &v);
    sl_json_begin_object(w, NULL);
    sl_json_put_string(w, "model", v.setup->model.name);
    sl_json_put_string(w, "weights", v.weights);
    sl_json_put_string(w, "data", v.setup->data);
    sl_json_put_string(w, "device", v.device);
    sl_json_put_string(w, "precision", sl_precision_name(v.setup->program.precision));
    sl_json_put_i64(w, "seqlen", v.setup->program.chunking.seqlen);
    sl_json_put_f64(w, "loss", r->loss);
    sl_json_put_f64(w, "perplexity", r->perplexity);
    if (r->bytes > 0) {
        sl_json_put_f64(w, "bits_per_byte", r->bits_per_byte);
        sl_json_put_i64(w, "bytes", r->bytes);
    } else {
        sl_json_put_null(w, "bits_per_byte");
        sl_json_put_null(w, "bytes");
        sl_json_put_string(w, "bytes_unknown", r->text_unknown ? r->text_unknown : "no target stands for text");
    }
    sl_json_put_i64(w, "tokens", (int64_t) r->tokens);
    sl_json_put_i64(w, "sequences", r->sequences);
    sl_json_put_f64(w, "seconds", r->seconds);
    sl_json_put_f64(w, "tokens_per_s", r->tokens_per_s);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        bool device = tier == SL_TIER_DEVICE;
        sl_json_begin_object(w, device ? "device_memory" : "host_memory");
        sl_json_put_bytes(w, "budget_bytes", v.budget_bytes[tier]);
        sl_json_put_bytes(w, "peak_bytes", v.measured.peak_bytes[tier]);
        sl_json_end_object(w);
    }
    sl_json_end_object(w);
}
