/* How a step is cut into chunks and rounds, at random, through planning: every combination of the options is planned, does not fit, or
 * is refused as a mistake of the user. None reaches a message about the inside of the planner. */
#include "core/rng.h"
#include "test.h"
#include "train/prediction.h"

enum { JOBS = 120 };

typedef struct combination {
    int64_t seqlen, tokens, chunk, round; /* 0: not given */
    const char *device_mem, *hw;
} combination;

static void set_i64(sl_job *job, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    CHECK_OK(sl_job_set(job, key, text));
}

static sl_status plan(const combination *c)
{
    sl_job *job;
    sl_prediction *prediction = NULL;
    CHECK_OK(sl_job_create(&job));
    CHECK_OK(sl_job_set(job, "model", "byte-test"));
    CHECK_OK(sl_job_set(job, "hw", c->hw));
    CHECK_OK(sl_job_set(job, "threads", "1"));
    set_i64(job, "seqlen", c->seqlen);
    if (c->tokens)
        set_i64(job, "tokens-per-step", c->tokens);
    if (c->chunk)
        set_i64(job, "chunk-tokens", c->chunk);
    set_i64(job, "chunks-per-round", c->round);
    if (c->device_mem)
        CHECK_OK(sl_job_set(job, "device-mem", c->device_mem));
    sl_status status = sl_prediction_create(job, &prediction);
    sl_prediction_destroy(prediction);
    sl_job_destroy(job);
    return status;
}

static uint64_t draws;

static int64_t pick(int64_t low, int64_t high)
{
    return low + (int64_t) (sl_philox(11, draws++, 0).v[0] % (uint64_t) (high - low + 1));
}

/* Mostly what belongs together, at times anything. */
static combination any(void)
{
    static const char *const memories[] = {NULL, "64MiB", "2MiB", "1", "1GiB"}, *const machines[] = {"h100", "h200"};
    combination c = {.seqlen = pick(0, 3) ? (int64_t) 16 << pick(0, 5) : pick(1, 300)};
    int64_t sequences = pick(0, 5) ? pick(1, 6) : pick(7, 40); /* large steps are planned by some of their rounds */
    c.tokens = pick(0, 9) ? sequences * c.seqlen : pick(-1, 1500);
    int64_t least = SL_MAX(c.seqlen / 24, 1);
    switch (pick(0, 3)) {
    case 0:
        break;
    case 1:
        c.chunk = c.seqlen * pick(1, 7);
        break;
    case 2:
        c.chunk = SL_MAX(c.seqlen / pick(1, 24), 1);
        break;
    default:
        c.chunk = pick(least, 2 * c.seqlen);
        break;
    }
    const int64_t slices = c.chunk ? SL_DIV_UP(c.seqlen, SL_MIN(c.chunk, c.seqlen)) : 1;
    c.round = pick(0, 2) == 0            ? 0
              : slices > 1 && pick(0, 1) ? pick(1, slices)
              : pick(0, 1)               ? slices * pick(1, 8)
                                         : pick(-1, 40);
    c.device_mem = memories[pick(0, SL_COUNT(memories) - 1)];
    c.hw = machines[pick(0, 1)];
    return c;
}

TEST(any_combination)
{
    int64_t planned = 0, refused = 0;
    for (int i = 0; i < JOBS; i++) {
        combination c = any();
        sl_status status = plan(&c);
        planned += status == SL_OK;
        refused += status == SL_E_USAGE;
        /* A mistake of the user is one of an option, and the message names it. */
        CHECK_MSG(status == SL_OK || status == SL_E_DOES_NOT_FIT ||
                      (status == SL_E_USAGE && strncmp(sl_error_message(), "--", 2) == 0),
                  "--seqlen %" PRId64 " --tokens-per-step %" PRId64 " --chunk-tokens %" PRId64
                  " --chunks-per-round %" PRId64 " --device-mem %s: %s: %s",
                  c.seqlen, c.tokens, c.chunk, c.round, c.device_mem ? c.device_mem : "unlimited",
                  sl_status_name(status), sl_error_message());
    }
    CHECK_MSG(planned > JOBS / 3 && refused > JOBS / 20, "%" PRId64 " planned, %" PRId64 " refused", planned, refused);
}

/* The slices of a sequence belong to one round. */
TEST(split_sequences)
{
    combination c = {.seqlen = 256, .tokens = 1280, .chunk = 16, .round = 3, .hw = "h100"};
    CHECK_FAILS(plan(&c), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "--chunks-per-round 3 would split a sequence over rounds: its 16 slices of 16 "
                                       "tokens belong together; give a multiple of 16");
    c.round = 16;
    CHECK_OK(plan(&c));
    c.round = 160; /* more than there are: all */
    CHECK_OK(plan(&c));
}

/* Whoever asks the planner itself for part of a sequence gets the whole of it. */
TEST(whole_sequences)
{
    sl_chunking sliced = {.seqlen = 256, .sequences = 5, .chunk_tokens = 16}, uneven = {10, 3, 4}, packed = {10, 7, 30};
    CHECK_I64(sl_chunking_slices(&sliced), 16);
    CHECK_I64(sl_chunking_chunks(&sliced), 80);
    CHECK_I64(sl_chunking_round(&sliced, 3), 16);
    CHECK_I64(sl_chunking_round(&sliced, 47), 32);
    CHECK_I64(sl_chunking_round(&sliced, 1000), 80);
    CHECK_I64(sl_chunking_round(&sliced, 0), 80);
    CHECK_I64(sl_chunking_slices(&uneven), 3);
    CHECK_I64(sl_chunking_chunks(&uneven), 9);
    CHECK_I64(sl_chunking_slices(&packed), 1);
    CHECK_I64(sl_chunking_chunks(&packed), 3);
    CHECK_I64(sl_chunking_round(&packed, 2), 2);
    CHECK_I64(sl_chunking_round(&packed, 9), 3);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(any_combination);
    RUN(split_sequences);
    RUN(whole_sequences);
    return test_end();
}
