/*
 * Documents kept apart (--mask-documents) on the CPU, in sequences that are whole and in sequences cut into slices, against a
 * reference that needs neither masks nor restarted positions: the same documents, all of one length, as sequences of their own.
 *
 *     whole      | 0 a a a 0 b b b 0 c c c 0 d d d |     one sequence of four documents in one chunk
 *     sliced     | 0 a a a 0 b | b b 0 c c c | 0 d d d |     its slices end inside documents
 *     reference  | 0 a a a | 0 b b b | 0 c c c | 0 d d d |
 *
 * Inputs and targets of a step are the same in all three, so losses are equal but for the order of sums, from the first step
 * (forward) to the last (gradients, hence weights). Rotary positions are relative: a run that does not restart them is wrong only
 * where a slice counts from its own start. GPT-2 learns a vector for each position and sees every wrong one.
 */
#include "run_job.h"

enum { DOCUMENT = 24, DOCUMENTS = 4, SEQUENCES = 2, STEPS = 6 };

/* SEQUENCES * DOCUMENTS documents of DOCUMENT tokens, the separator included, and one more for the last target. */
static const char *documents_path(void)
{
    uint32_t state = 7;
    CHECK_OK(sl_dir_create(test_path("documents")));
    for (int d = 0; d <= SEQUENCES * DOCUMENTS; d++) {
        char text[DOCUMENT - 1], name[64];
        for (size_t i = 0; i < sizeof text; i++) {
            state = state * 1664525u + 1013904223u;
            text[i] = (char) ('a' + (state >> 24) % 12);
        }
        snprintf(name, sizeof name, "documents/%02d.txt", d);
        CHECK_OK(sl_file_write_atomic(test_path(name), text, d < SEQUENCES * DOCUMENTS ? sizeof text : 1));
    }
    return test_path("documents");
}

static const char *gpt2_path(void)
{
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 48, \"n_head\": 3, \"vocab_size\": 256, "
        "\"n_positions\": 96, \"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}";
    static char path[512];
    CHECK_OK(sl_dir_create(test_path("gpt2")));
    CHECK_OK(sl_file_write_atomic(test_path("gpt2/config.json"), config, sizeof config - 1));
    snprintf(path, sizeof path, "%s", test_path("gpt2"));
    return path;
}

static void run_documents(const char *model, const char *cut, outcome *out)
{
    char options[1600];
    snprintf(options, sizeof options,
             "model '%s' data '%s' tokens-per-step %d steps %d warmup 0 schedule constant device cpu precision f32 %s",
             model, documents_path(), SEQUENCES * DOCUMENTS * DOCUMENT, STEPS, cut);
    run_job(options, STEPS, out);
    CHECK_I64(out->steps, STEPS);
}

static void check_near(const char *model, const char *cut, const outcome *got, const outcome *want)
{
    for (int i = 0; i < STEPS; i++)
        CHECK_MSG(fabs(got->loss[i] - want->loss[i]) <= 2e-6 * want->loss[i],
                  "%s, %s: loss %.9g at step %d, but %.9g with each document by itself", model, cut, got->loss[i],
                  i + 1, want->loss[i]);
}

TEST(documents_are_independent)
{
    const char *const models[] = {"byte-test", gpt2_path()};
    /* Slices of 40 and 16 tokens, of 7 (several in a document), and of 24, whose borders are those of documents. */
    static const char *const cuts[] = {"96", "40", "7", "24"};
    for (int m = 0; m < 2; m++) {
        outcome want, got;
        char cut[128];
        run_documents(models[m], "seqlen 24 chunk-tokens 96", &want);
        CHECK(want.loss[STEPS - 1] < want.loss[0] - 0.1); /* it learns, so later losses tell of the gradients */
        for (int64_t k = 0; k < SL_COUNT(cuts); k++) {
            snprintf(cut, sizeof cut, "seqlen 96 chunk-tokens %s mask-documents true", cuts[k]);
            run_documents(models[m], cut, &got);
            check_near(m ? "gpt2" : "llama", cut, &got, &want);
        }
        run_documents(models[m], "seqlen 96 chunk-tokens 40", &got); /* without the mask they see each other */
        CHECK(fabs(got.loss[0] - want.loss[0]) > 1e-4 * want.loss[0]);
    }
}

/* More documents in a sequence than any kernel has threads, each as if it were alone. */
TEST(very_many_documents)
{
    enum { LENGTH = 4, COUNT = 384 };
    char text[LENGTH * COUNT + 1], options[1600];
    uint32_t state = 3;
    outcome alone, together, sliced;
    for (size_t i = 0; i < sizeof text; i++) { /* behind the separator with which a text begins: "abc;def;..." */
        state = state * 1664525u + 1013904223u;
        text[i] = i % LENGTH == LENGTH - 1 ? ';' : (char) ('a' + (state >> 24) % 12);
    }
    CHECK_OK(sl_file_write_atomic(test_path("many.txt"), text, sizeof text));
    const char *const forms[] = {"seqlen 4 chunk-tokens 1536", "seqlen 1536 chunk-tokens 1536 mask-documents true",
                                 "seqlen 1536 chunk-tokens 400 mask-documents true"};
    outcome *const out[] = {&alone, &together, &sliced};
    for (int i = 0; i < 3; i++) {
        snprintf(
            options, sizeof options,
            "data '%s' document-token %d tokens-per-step %d steps %d warmup 0 schedule constant device cpu precision "
            "f32 %s",
            test_path("many.txt"), ';', LENGTH * COUNT, STEPS, forms[i]);
        run_job(options, STEPS, out[i]);
        CHECK_I64(out[i]->steps, STEPS);
    }
    check_near("byte-test", forms[1], &together, &alone);
    check_near("byte-test", forms[2], &sliced, &alone);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(documents_are_independent);
    RUN(very_many_documents);
    return test_end();
}
