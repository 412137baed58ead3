/* Small jobs for tests of the trainer: a corpus made on the spot, a job from a list of options, a run and what came out. */
#ifndef SL_TESTS_RUN_JOB_H
#define SL_TESTS_RUN_JOB_H

#include "core/file.h"
#include "core/json.h"
#include "test.h"
#include "train/prediction.h"
#include "train/trainer.h"

/* Words from a small vocabulary: something to learn within a few steps. */
static inline const char *corpus_path(void)
{
    static char path[512];
    if (path[0])
        return path;
    static const char *const words[] = {"sluice ", "gate ", "water ", "runs ", "down ", "the ", "hill\n", "and "};
    sl_text text = {0};
    uint32_t state = 1;
    for (int i = 0; i < 4000; i++) {
        state = state * 1664525u + 1013904223u;
        const char *word = words[state >> 29];
        sl_text_append(&text, word, strlen(word));
    }
    snprintf(path, sizeof path, "%s", test_path("corpus.txt"));
    CHECK_OK(sl_text_status(&text));
    CHECK_OK(sl_file_write_atomic(path, text.data, text.length));
    sl_text_free(&text);
    return path;
}

/* The next word of a text, or what stands between two '; NULL: no more. */
static inline char *next_word(char **text)
{
    char *word = *text + strspn(*text, " ");
    if (!*word)
        return NULL;
    bool quoted = *word == '\'';
    word += quoted;
    char *end = word + strcspn(word, quoted ? "'" : " ");
    *text = end + (*end != 0);
    *end = 0;
    return word;
}

/* "key value key value ...", on top of the defaults of a small job; paths in ', whatever the folder of temporary files is called.
 * Later ones win. SLUICE_TEST_DEVICE=cuda: on a GPU. */
static inline sl_job *make_job(const char *options)
{
    sl_job *job;
    char copy[2048], *rest = copy;
    CHECK_OK(sl_job_create(&job));
    CHECK_OK(sl_job_set(job, "model", "byte-test"));
    CHECK_OK(sl_job_set(job, "data", corpus_path()));
    CHECK_OK(sl_job_set(job, "seqlen", "32"));
    CHECK_OK(sl_job_set(job, "tokens-per-step", "192"));
    CHECK_OK(sl_job_set(job, "chunk-tokens", "64"));
    CHECK_OK(sl_job_set(job, "steps", "5"));
    CHECK_OK(sl_job_set(job, "lr", "3e-3"));
    CHECK_OK(sl_job_set(job, "device", getenv("SLUICE_TEST_DEVICE") ? getenv("SLUICE_TEST_DEVICE") : "cpu"));
    CHECK_OK(sl_job_set(job, "costs", "roofline"));
    snprintf(copy, sizeof copy, "%s", options);
    for (char *key; (key = next_word(&rest)) != NULL;) {
        char *value = next_word(&rest);
        REQUIRE(value != NULL);
        CHECK_OK(sl_job_set(job, key, value));
    }
    return job;
}

typedef struct outcome {
    double loss[64];
    int64_t steps; /* run */
    char hash[32];
    sl_trainer_view view; /* its pointers are gone */
} outcome;

static inline void read_report(sl_trainer *trainer, outcome *out)
{
    const char *json, *hash;
    sl_region *region;
    const sl_json *root;
    CHECK_OK(sl_trainer_report(trainer, &json));
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "report", json, strlen(json), &root));
    CHECK_OK(sl_json_string_or("report", root, "weights_hash", "", &hash));
    snprintf(out->hash, sizeof out->hash, "%s", hash);
    const sl_json *loss = sl_json_get(root, "loss")->child;
    for (out->steps = 0; loss && out->steps < 64; loss = loss->next)
        out->loss[out->steps++] = loss->number;
    sl_region_destroy(region);
}

/* Runs to the end, or for `limit` steps. */
static inline void run_job(const char *options, int64_t limit, outcome *out)
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    memset(out, 0, sizeof *out);
    CHECK_OK(sl_trainer_create(job, &trainer));
    sl_job_destroy(job);
    for (int64_t i = 0; i < limit && !result.done; i++)
        CHECK_OK(sl_trainer_step(trainer, &result));
    sl_trainer_look(trainer, &out->view);
    read_report(trainer, out);
    sl_trainer_destroy(trainer);
}

/* A job that no run begins, and a part of the reason. */
static inline void refused_job(const char *options, sl_status status, const char *part)
{
    sl_trainer *trainer;
    sl_job *job = make_job(options);
    CHECK_FAILS(sl_trainer_create(job, &trainer), status);
    CHECK_CONTAINS(sl_error_message(), part);
    sl_job_destroy(job);
}

static inline void prediction_job(const char *options, sl_prediction_view *view)
{
    sl_job *job = make_job(options);
    sl_prediction *prediction;
    CHECK_OK(sl_prediction_create(job, &prediction));
    sl_prediction_view_of(prediction, view);
    sl_prediction_destroy(prediction);
    sl_job_destroy(job);
}

static inline bool same_run(const outcome *a, const outcome *b)
{
    return a->steps == b->steps && strcmp(a->hash, b->hash) == 0 &&
           memcmp(a->loss, b->loss, (size_t) a->steps * sizeof *a->loss) == 0;
}

#endif
