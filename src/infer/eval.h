/* `sluice eval`: how well a model predicts a text. */
#ifndef SL_INFER_EVAL_H
#define SL_INFER_EVAL_H

#include "core/json.h"
#include "train/trainer.h"

const sl_option *sl_eval_table(int64_t *count);

typedef struct sl_eval sl_eval;
sl_status sl_eval_create(const sl_options *options, sl_progress_fn progress, void *user, sl_eval **eval);
void sl_eval_destroy(sl_eval *eval);
/* May be called from another thread, or a signal handler. */
void sl_eval_request_stop(sl_eval *eval);

/* What the evaluation found. */
typedef struct sl_eval_result {
    double loss;              /* nats per token */
    double perplexity;        /* e to that */
    double bits_per_byte;     /* NAN: the bytes of the text are not known */
    const char *text_unknown; /* why; NULL: they are */
    double tokens;            /* targets that count */
    int64_t bytes;            /* -1: not known */
    int64_t sequences;
    double seconds, tokens_per_s;
} sl_eval_result;
sl_status sl_eval_run(sl_eval *eval, sl_eval_result *result);

/* Of the run, for people: sl_trainer_look. */
void sl_eval_look(const sl_eval *eval, sl_trainer_view *view);
void sl_eval_put(const sl_eval *eval, const sl_eval_result *result, sl_json_writer *w);

#endif
