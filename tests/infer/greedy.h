/* The models of tests/golden/greedy, and what transformers made of them. */
#ifndef SL_TESTS_INFER_GREEDY_H
#define SL_TESTS_INFER_GREEDY_H

#include "core/file.h"
#include "infer/session.h"
#include "test.h"

/* By family; transformers' make_greedy.py has the same list. */
static const char *const greedy_models[] = {"llama", "gpt2", "qwen3",   "mistral", "qwen2",
                                            "olmo2", "phi3", "smollm3", "gemma2",  "gemma3_text"};

typedef struct greedy {
    char folder[512];
    int32_t prompt[256], tokens[256];
    float logits[512];
    int64_t n_prompt, n_tokens, n_logits;
} greedy;

static inline greedy *greedy_read(const char *name)
{
    static greedy g;
    char path[600], *data;
    size_t length;
    sl_region *region;
    const sl_json *root;
    g = (greedy){.n_prompt = 0};
    snprintf(g.folder, sizeof g.folder, "%s/tests/golden/greedy/%s", SL_SOURCE_DIR, name);
    snprintf(path, sizeof path, "%s/greedy.json", g.folder);
    CHECK_OK(sl_file_read_all(path, 1 << 20, &data, &length));
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, path, data, length, &root));
    for (const sl_json *x = sl_json_get(root, "prompt")->child; x; x = x->next)
        g.prompt[g.n_prompt++] = (int32_t) x->number;
    for (const sl_json *x = sl_json_get(root, "tokens")->child; x; x = x->next)
        g.tokens[g.n_tokens++] = (int32_t) x->number;
    for (const sl_json *x = sl_json_get(root, "logits")->child; x; x = x->next)
        g.logits[g.n_logits++] = (float) x->number;
    sl_region_destroy(region);
    sl_free(data);
    return &g;
}

static inline sl_job *greedy_job(const char *folder)
{
    sl_job *job;
    const char *device = getenv("SLUICE_TEST_DEVICE");
    CHECK_OK(sl_job_create(&job));
    CHECK_OK(sl_job_set(job, "model", folder));
    CHECK_OK(sl_job_set(job, "precision", "f32"));
    CHECK_OK(sl_job_set(job, "device", device ? device : "cpu"));
    CHECK_OK(sl_job_set(job, "costs", "roofline"));
    return job;
}

static inline int32_t greedy_best(const float *logits, int64_t words)
{
    int32_t best = 0;
    for (int32_t i = 1; i < words; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

#endif
