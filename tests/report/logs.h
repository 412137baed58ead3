/* Event logs made by hand, for tests that know what a report of them must say. */
#ifndef SL_TESTS_REPORT_LOGS_H
#define SL_TESTS_REPORT_LOGS_H

#include "report/input.h"
#include "test.h"

/* A step of 1 s. What is not told is 0. */
typedef struct made_step {
    double matmul_s;     /* above the ridge */
    double norm_s;       /* below it */
    double recomputed_s; /* matmuls again */
    double wait_in_s, wait_host_s, data_s, checkpoint_s;
} made_step;

#define MADE_RUN                                                        \
    "{\"event\":\"run\",\"t\":0,\"model\":\"made\",\"numerics\":\"cpu " \
    "test\",\"precision\":\"f32\",\"parameters\":1000,"                 \
    "\"tokens_per_step\":2048,\"seqlen\":256,\"first_step\":0,\"options\":{\"steps\":3}}\n"
#define MADE_PLAN                                                                                                     \
    "{\"event\":\"plan\",\"t\":0,\"limit\":\"compute\",\"step_s\":1.0,\"tokens_per_s\":2048,\"mfu\":0.5,\"hfu\":0.5," \
    "\"device_peak_bytes\":1000,\"device_budget_bytes\":2000,\"host_budget_bytes\":null,\"hardware\":{\"name\":"      \
    "\"made\","                                                                                                       \
    "\"peak_flops\":1e12,\"memory_bandwidth\":1e11},\"busy_s\":{\"compute\":1.0,\"in\":0,\"out\":0,\"host\":0}}\n"

/* Ridge 10 FLOP/B; three steps, then the end. */
static inline void make_log(const made_step *m, sl_text *out)
{
    sl_text_printf(out, MADE_RUN MADE_PLAN);
    for (int i = 1; i <= 3; i++)
        sl_text_printf(out,
                       "{\"event\":\"step\",\"t\":1,\"step\":%d,\"loss\":%d.5,\"seconds\":1.0,\"data_s\":%.17g,"
                       "\"tokens_per_s\":2048}\n",
                       i, 5 - i, m->data_s);
    if (m->checkpoint_s > 0)
        sl_text_printf(out, "{\"event\":\"checkpoint\",\"t\":2,\"step\":3,\"seconds\":%.17g}\n", 3 * m->checkpoint_s);
    sl_text_printf(
        out,
        "{\"event\":\"end\",\"t\":3,\"reason\":\"done\",\"step_s\":1.0,\"tokens_per_s\":2048,\"mfu\":0.25,"
        "\"device_peak_bytes\":1500,\"device_budget_bytes\":2000,\"host_budget_bytes\":null,"
        "\"busy_s\":{\"compute\":%.17g},\"wait_s\":{\"in\":%.17g,\"out\":0,\"host\":%.17g},\"ops\":["
        "{\"op\":\"matmul\",\"stream\":\"compute\",\"count\":4,\"measured_s\":%.17g,\"recomputed_s\":%.17g,"
        "\"predicted_s\":0.5,\"flops\":2e11,\"bytes\":2e9},"
        "{\"op\":\"rmsnorm\",\"stream\":\"compute\",\"count\":2,\"measured_s\":%.17g,\"flops\":1e9,\"bytes\":1e10},"
        "{\"op\":\"copy in\",\"stream\":\"in\",\"count\":2,\"measured_s\":0.25,\"bytes\":1e9}]}\n",
        m->matmul_s + m->recomputed_s + m->norm_s, m->wait_in_s, m->wait_host_s, m->matmul_s + m->recomputed_s,
        m->recomputed_s, m->norm_s);
}

static inline sl_input *read_log(const char *text)
{
    sl_input *input;
    CHECK_OK(sl_input_parse("made.jsonl", text, strlen(text), &input));
    return input;
}

#endif
