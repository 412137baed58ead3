/* What is expected of a machine that is not here: the workspace of attention's backward, with scores in memory or not and no more than is
 * needed, and the time of what multiplies matrices. */
#include "cost/cost.h"
#include "device/device.h"
#include "model/model.h"
#include "ops/attention.h"
#include "test.h"

enum { ROWS = 8192, HEADS = 32, KV_HEADS = 8 };

static sl_launch backward(int head_dim, int64_t before)
{
    int64_t width = (int64_t) HEADS * head_dim, kv_width = 2 * (int64_t) KV_HEADS * head_dim;
    sl_launch launch = {.op = SL_OP_ATTENTION_BWD};
    *sl_attention_set(&launch.attrs) =
        *SL_ATTRS(attention, .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = head_dim, .causal = 1,
                  .q_offset = before, .sequence = ROWS + before, .uniform = ROWS + before);
    const sl_type q = {SL_BF16, 2, {ROWS, width}}, kv = {SL_BF16, 2, {ROWS + before, kv_width}};
    launch.in[0].type = launch.in[1].type = launch.in[3].type = launch.out[0].type = q;
    launch.in[2].type = launch.out[1].type = kv;
    return launch;
}

static size_t wanted(const char *machine, int head_dim, int64_t before, size_t limit)
{
    sl_hardware hardware;
    sl_launch launch = backward(head_dim, before);
    launch.workspace_bytes = limit;
    CHECK_OK(sl_hardware_find(machine, &hardware));
    return sl_device_def_for(&hardware)->estimate_workspace(&hardware, &launch, SL_STREAM_COMPUTE);
}

TEST(scores_in_memory)
{
    const size_t scores = (size_t) 2 * HEADS * ROWS * ROWS;
    CHECK(wanted("a100", 128, 0, 0) >= scores);
    CHECK(wanted("a100", 128, 0, scores / 4) < scores / 2); /* the heads one group after the other */
    CHECK(wanted("h200", 96, 0, 0) >= scores);              /* cuDNN's there too */
}

TEST(sums_in_memory)
{
    static const int head_dims[] = {64, 128};
    for (int i = 0; i < (int) SL_COUNT(head_dims); i++) {
        size_t sums = (size_t) ROWS * HEADS * (size_t) head_dims[i] * sizeof(float);
        CHECK(wanted("h200", head_dims[i], 0, 0) >= sums);
        CHECK(wanted("h200", head_dims[i], 0, 0) <= sums + sums / 16);
        CHECK_U64(wanted("h200", head_dims[i], 57344, 0), wanted("h200", head_dims[i], 0, 0)); /* however many keys */
    }
}

/* What is measured or asked for a signature is its example's launch, with types for the operands it has, and no more. */
TEST(launches_of_signatures)
{
    sl_model model;
    sl_program *program;
    sl_program_config config = {
        .chunking = {16, 2, 16}, .max_segments = 1, .gated = true, .norm = true, .workspace_limit = 12345};
    CHECK_OK(sl_model_find("byte-test", &model));
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
    for (int32_t k = 0; k < program->n_signatures; k++) {
        const sl_task *task = &program->tasks[program->signatures[k].example];
        sl_launch launch, want;
        memset(&want, 0, sizeof want);
        want.op = task->op;
        want.accumulate = task->accumulate;
        want.attrs = sl_signature_attrs(task);
        want.workspace_bytes = 12345;
        for (int i = 0; i < SL_MAX_IN; i++)
            if (task->in[i].object >= 0)
                want.in[i].type = task->in[i].type;
        for (int i = 0; i < SL_MAX_OUT; i++)
            if (task->out[i].object >= 0)
                want.out[i].type = task->out[i].type;
        memset(&launch, 0x5a, sizeof launch);
        sl_costs_launch(program, k, &launch);
        CHECK_MSG(memcmp(&launch, &want, sizeof want) == 0, "signature %d, %s", k, task->name);
    }
    sl_program_destroy(program);
}

/* Whatever its category, an op that multiplies matrices is no faster than the machine: Muon's updates of `small` are 2.1 TFLOP. */
TEST(arithmetic_of_optimizers)
{
    const sl_program_config config = {
        .chunking = {64, 1, 64}, .precision = SL_PRECISION_BF16, .max_segments = 1, .optimizer = SL_OPTIMIZER_MUON};
    sl_hardware hardware;
    sl_model model;
    sl_program *program;
    sl_costs *costs;
    double seconds = 0;
    CHECK_OK(sl_hardware_find("h200", &hardware));
    CHECK_OK(sl_model_find("small", &model));
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
    CHECK_OK(sl_costs_roofline(program, &hardware, NULL, &costs));
    for (int32_t t = 0; t < program->n_tasks; t++)
        if (program->tasks[t].op == SL_OP_MUON)
            seconds += costs->device_s[program->tasks[t].signature];
    CHECK_MSG(seconds > 2.12e12 / hardware.peak_flops[SL_BF16], "all updates take %.3g s", seconds);
    sl_costs_destroy(costs);
    sl_program_destroy(program);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(scores_in_memory);
    RUN(sums_in_memory);
    RUN(launches_of_signatures);
    RUN(arithmetic_of_optimizers);
    return test_end();
}
