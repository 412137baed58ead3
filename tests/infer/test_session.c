/* Reading texts with a cache: the logits and the greedy text of transformers, which computes them without one, for every family; the same
 * logits however a text is cut, and the same bits within every budget. */
#include "greedy.h"

static double worst_difference(const float *a, const float *b, int64_t count)
{
    double worst = 0;
    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double) a[i] - (double) b[i]));
    return worst;
}

TEST(greedy_text_of_transformers)
{
    for (int64_t m = 0; m < SL_COUNT(greedy_models); m++) {
        const greedy *g = greedy_read(greedy_models[m]);
        sl_job *job = greedy_job(g->folder);
        sl_session *session;
        int64_t same = 0;
        CHECK_OK(sl_session_create(job, g->n_prompt + g->n_tokens, &session));
        CHECK_OK(sl_session_read(session, g->prompt, g->n_prompt));
        const double off = worst_difference(sl_session_logits(session), g->logits, g->n_logits);
        CHECK_MSG(off < 1e-5, "%s: logits are off by %g", greedy_models[m], off);
        while (same < g->n_tokens) {
            const int32_t token = greedy_best(sl_session_logits(session), g->n_logits);
            if (token != g->tokens[same])
                break;
            same++;
            if (same < g->n_tokens)
                CHECK_OK(sl_session_read(session, &token, 1));
        }
        CHECK_MSG(same == g->n_tokens && same == 200, "%s: the first %d tokens are those of transformers",
                  greedy_models[m], (int) same);
        sl_session_destroy(session);
        sl_job_destroy(job);
    }
}

/* At once, in pieces of which some are longer than a chunk, and token by token. */
TEST(the_cut_of_a_text_does_not_matter)
{
    for (int64_t m = 0; m < SL_COUNT(greedy_models); m++) {
        const greedy *g = greedy_read(greedy_models[m]);
        static const int64_t pieces[] = {1, 2, 3, 63, 64, 65};
        sl_job *job = greedy_job(g->folder);
        sl_session *session;
        float whole[512];
        const size_t bytes = (size_t) g->n_logits * sizeof *whole;
        CHECK_OK(sl_session_create(job, g->n_tokens, &session));
        CHECK_OK(sl_session_read(session, g->tokens, g->n_tokens));
        memcpy(whole, sl_session_logits(session), bytes);
        for (int64_t p = 0; p < SL_COUNT(pieces); p++) {
            sl_session_rewind(session, 0);
            for (int64_t at = 0; at < g->n_tokens; at += pieces[p])
                CHECK_OK(sl_session_read(session, g->tokens + at, SL_MIN(pieces[p], g->n_tokens - at)));
            const double off = worst_difference(sl_session_logits(session), whole, g->n_logits);
            CHECK_MSG(off < 1e-5, "%s by %d: logits are off by %g", greedy_models[m], (int) pieces[p], off);
        }
        sl_session_destroy(session);
        sl_job_destroy(job);
    }
}

/* Of every prefix of a text, so that all of the cache takes part. */
static uint64_t hash_of_logits(const greedy *g, const char *device_mem, const char *threads, size_t *peak)
{
    sl_job *job = greedy_job(g->folder);
    sl_session *session;
    sl_session_view view;
    uint64_t hash = 0;
    if (device_mem)
        CHECK_OK(sl_job_set(job, "device-mem", device_mem));
    CHECK_OK(sl_job_set(job, "threads", threads));
    CHECK_OK(sl_session_create(job, g->n_tokens, &session));
    CHECK_OK(sl_session_read(session, g->tokens, 100));
    for (int64_t i = 100; i < 120; i++) {
        const unsigned char *logits = (const unsigned char *) sl_session_logits(session);
        for (size_t b = 0; b < (size_t) g->n_logits * sizeof(float); b++)
            hash = (hash ^ logits[b]) * UINT64_C(0x100000001b3);
        CHECK_OK(sl_session_read(session, g->tokens + i, 1));
    }
    sl_session_look(session, &view);
    *peak = view.peak_bytes[SL_TIER_DEVICE];
    sl_session_destroy(session);
    sl_job_destroy(job);
    return hash;
}

TEST(budgets_and_threads_change_no_bit)
{
    for (int64_t m = 0; m < SL_COUNT(greedy_models); m += 4) { /* llama, qwen2, gemma2 */
        const greedy *g = greedy_read(greedy_models[m]);
        size_t free_peak, peak;
        const uint64_t want = hash_of_logits(g, NULL, "1", &free_peak);
        for (int share = 99; share >= 95; share -= 2) {
            char budget[32];
            const size_t bytes = free_peak * (size_t) share / 100;
            snprintf(budget, sizeof budget, "%zu", bytes);
            CHECK_MSG(hash_of_logits(g, budget, share % 2 ? "2" : "3", &peak) == want, "%s: other bits within %s",
                      greedy_models[m], budget);
            CHECK_MSG(peak <= bytes, "%s: %zu bytes of %zu", greedy_models[m], peak, bytes);
        }
    }
}

TEST(refusals)
{
    const greedy *g = greedy_read("gpt2");
    sl_job *job = greedy_job(g->folder);
    sl_session *session;
    const int32_t none = 97, negative = -1;
    CHECK_FAILS(sl_session_create(job, 257, &session), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "256 positions");
    CHECK_OK(sl_session_create(job, 64, &session));
    CHECK_FAILS(sl_session_read(session, &none, 1), SL_E_USAGE);
    CHECK_FAILS(sl_session_read(session, &negative, 1), SL_E_USAGE);
    CHECK_FAILS(sl_session_read(session, g->tokens, 65), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "planned for 64");
    sl_session_destroy(session);
    CHECK_OK(sl_job_set(job, "device-mem", "10kB"));
    CHECK_FAILS(sl_session_create(job, 64, &session), SL_E_DOES_NOT_FIT);
    sl_job_destroy(job);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(greedy_text_of_transformers);
    RUN(the_cut_of_a_text_does_not_matter);
    RUN(budgets_and_threads_change_no_bit);
    RUN(refusals);
    return test_end();
}
