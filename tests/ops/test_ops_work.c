/* Costs: summed over a training step they must be the formulas that MFU and HFU are defined by (docs, "Metrics"), packed or
 * sliced; bytes must be what a launch really touches. */
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/rope.h"
#include "ops/tape.h"

/* A small Llama: every dimension different, so that a mix-up shows. */
enum { S = 96, N = 6, D = 40, HEADS = 6, KV_HEADS = 2, E = 8, A = HEADS * E, K = KV_HEADS * E, F = 56, V = 77, L = 3 };

/* Adds a forward launch and all launches of its gradient rule. */
static void add_with_gradient(sl_work *sum, sl_launch *launch)
{
    const sl_op_def *def = sl_op(launch->op);
    sl_type in[SL_MAX_IN], out[SL_MAX_OUT] = {{0}};
    sl_operand d_out[SL_MAX_OUT] = {{0}}, step = {NULL, sl_type_1d(SL_I32, SL_STEP_WORDS)};
    for (int i = 0; i < SL_MAX_IN; i++)
        in[i] = launch->in[i].type;
    CHECK_OK(def->infer(&launch->attrs, in, out));
    for (int k = 0; k < SL_MAX_OUT; k++)
        launch->out[k].type = out[k];
    d_out[0].type = out[0];
    if (launch->op == SL_OP_ROPE)
        d_out[1].type = out[1];
    sl_work work = {0};
    if (!sl_op(launch->op)->yields_loss) /* its backward gives the loss too: training never runs the forward */
        def->work(launch, &work);
    tape tp = {.counting = true};
    tape_run(&tp, launch, d_out, &step);
    sum->flops += work.flops + tp.work.flops;
    sum->hardware_flops += work.hardware_flops + tp.work.hardware_flops;
}

static void add_matmul(sl_work *sum, int64_t tokens, int64_t from, int64_t to)
{
    sl_launch launch = {.op = SL_OP_MATMUL};
    sl_matmul_set(&launch.attrs)->trans_b = 1;
    launch.in[0].type = sl_type_2d(SL_BF16, tokens, from);
    launch.in[1].type = sl_type_2d(SL_BF16, to, from);
    add_with_gradient(sum, &launch);
}

static void add_norm_and_swiglu(sl_work *sum, int64_t tokens)
{
    sl_launch norm = {.op = SL_OP_RMSNORM}, swiglu = {.op = SL_OP_SWIGLU};
    norm.in[0].type = sl_type_2d(SL_BF16, tokens, D);
    norm.in[1].type = sl_type_1d(SL_BF16, D);
    swiglu.in[0].type = sl_type_2d(SL_BF16, tokens, 2 * F);
    add_with_gradient(sum, &norm);
    add_with_gradient(sum, &swiglu);
}

static void add_attention(sl_work *sum, int64_t tokens, int64_t offset, int64_t sequences, int64_t boundaries)
{
    sl_launch rope = {.op = SL_OP_ROPE}, attention = {.op = SL_OP_ATTENTION};
    sl_rope_set(&rope.attrs)->heads = HEADS;
    sl_rope_set(&rope.attrs)->kv_heads = KV_HEADS;
    sl_rope_set(&rope.attrs)->head_dim = E;
    rope.in[0].type = sl_type_2d(SL_BF16, tokens, A + 2 * K);
    rope.in[1].type = sl_type_1d(SL_I32, tokens);
    sl_attention_set(&attention.attrs)->heads = HEADS;
    sl_attention_set(&attention.attrs)->kv_heads = KV_HEADS;
    sl_attention_set(&attention.attrs)->head_dim = E;
    sl_attention_set(&attention.attrs)->causal = 1;
    sl_attention_set(&attention.attrs)->q_offset = offset;
    sl_attention_set(&attention.attrs)->sequence = sequences ? tokens / sequences : S;
    attention.in[0].type = sl_type_2d(SL_BF16, tokens, A);
    attention.in[1].type = sl_type_2d(SL_BF16, offset + tokens, 2 * K);
    attention.in[2].type = sl_type_1d(SL_I32, boundaries);
    add_with_gradient(sum, &rope);
    add_with_gradient(sum, &attention);
}

static void add_chunk(sl_work *sum, int64_t tokens, int64_t offset, int64_t sequences)
{
    for (int layer = 0; layer < L; layer++) {
        add_norm_and_swiglu(sum, tokens);
        add_matmul(sum, tokens, D, A + 2 * K);
        add_attention(sum, tokens, offset, sequences, 33);
        add_matmul(sum, tokens, A, D);
        add_matmul(sum, tokens, D, 2 * F);
        add_matmul(sum, tokens, F, D);
    }
    sl_launch head = {.op = SL_OP_HEAD_LOSS};
    head.in[0].type = sl_type_2d(SL_BF16, tokens, D);
    head.in[1].type = sl_type_2d(SL_BF16, V, D);
    head.in[2].type = sl_type_1d(SL_I32, tokens);
    add_with_gradient(sum, &head);
}

/* The formulas, word for word. */
static double step_flops(double *hardware)
{
    double s = S, d = D, a = A, k = K, f = F, v = V, n = N, l = L;
    double layer_matmul = 2 * s * d * (2 * a + 2 * k + 3 * f), attn_fwd = 2 * s * s * a, attn_bwd = 4 * s * s * a;
    double head = 6 * s * d * v;
    *hardware = n * (l * (3 * layer_matmul + attn_fwd + attn_bwd + s * s * a) + head);
    return n * (l * (3 * layer_matmul + attn_fwd + attn_bwd) + head);
}

TEST(packed_step)
{
    sl_work sum = {0};
    double hardware, flops = step_flops(&hardware);
    for (int chunk = 0; chunk < N / 3; chunk++)
        add_chunk(&sum, 3 * S, 0, 3);
    CHECK_NEAR(sum.flops, flops, 0);
    CHECK_NEAR(sum.hardware_flops, hardware, 0);
}

TEST(one_sequence_step)
{
    sl_work sum = {0};
    double hardware, flops = step_flops(&hardware);
    for (int chunk = 0; chunk < N; chunk++)
        add_chunk(&sum, S, 0, 1);
    CHECK_NEAR(sum.flops, flops, 0);
    CHECK_NEAR(sum.hardware_flops, hardware, 0);
}

TEST(sliced_step)
{
    sl_work sum = {0};
    double hardware, flops = step_flops(&hardware);
    for (int sequence = 0; sequence < N; sequence++)
        for (int64_t offset = 0; offset < S; offset += 36) /* the last slice is shorter */
            add_chunk(&sum, SL_MIN(36, S - offset), offset, 0);
    CHECK_NEAR(sum.flops, flops, 0);
    CHECK_NEAR(sum.hardware_flops, hardware, 0);
}

/* A window's pairs, one by one, against the closed form: of whole sequences packed, and of the slices of one. */
static double window_flops(int64_t n, int64_t offset, int64_t length, int64_t window, int causal)
{
    sl_launch launch = {.op = SL_OP_ATTENTION};
    sl_work work;
    *sl_attention_set(&launch.attrs) = (struct sl_attention_attrs){.heads = 2,
                                                                   .kv_heads = 1,
                                                                   .head_dim = E,
                                                                   .causal = causal,
                                                                   .q_offset = offset,
                                                                   .sequence = length,
                                                                   .window = window};
    launch.in[0].type = sl_type_2d(SL_BF16, n, 2 * E);
    launch.in[1].type = sl_type_2d(SL_BF16, offset + n, 2 * E);
    launch.in[2].type = sl_type_1d(SL_I32, 9);
    sl_op(SL_OP_ATTENTION)->work(&launch, &work);
    return work.flops / (2 * 2 * E);
}

static double count_double_pairs(int64_t first, int64_t end, int64_t length, int64_t window, int causal)
{
    double pairs = 0;
    for (int64_t row = first; row < end; row++)
        for (int64_t key = SL_MAX(0, row - window + 1); key < (causal ? row + 1 : length); key++)
            pairs += causal && key == row ? 1 : 2;
    return pairs;
}

TEST(window)
{
    for (int causal = 0; causal < 2; causal++)
        for (int64_t window = 1; window < 60; window += 7) {
            double one = count_double_pairs(0, 40, 40, window, causal);
            CHECK_NEAR(window_flops(120, 0, 40, window, causal), 3 * one, 0);
            CHECK_NEAR(window_flops(40, 0, 40, window, causal), one, 0);
            for (int64_t offset = 0; offset < 40 && causal; offset += 10)
                CHECK_NEAR(window_flops(10, offset, 40, window, 1),
                           count_double_pairs(offset, offset + 10, 40, window, 1), 0);
        }
}

/* Without attrs.sequence the boundaries' number tells; full attention sees every row. */
TEST(attention_shares)
{
    sl_launch launch = {.op = SL_OP_ATTENTION};
    sl_work work;
    sl_attention_set(&launch.attrs)->heads = sl_attention_set(&launch.attrs)->kv_heads = 1;
    sl_attention_set(&launch.attrs)->head_dim = 16;
    sl_attention_set(&launch.attrs)->causal = 1;
    launch.in[0].type = sl_type_2d(SL_F32, 60, 16);
    launch.in[1].type = sl_type_2d(SL_F32, 60, 32);
    launch.in[2].type = sl_type_1d(SL_I32, 4);
    sl_op(SL_OP_ATTENTION)->work(&launch, &work);
    CHECK_NEAR(work.flops, 3 * 2.0 * 20 * 20 * 16, 0);
    sl_attention_set(&launch.attrs)->causal = 0;
    launch.in[2].type = sl_type_1d(SL_I32, 2);
    sl_op(SL_OP_ATTENTION)->work(&launch, &work);
    CHECK_NEAR(work.flops, 4.0 * 60 * 60 * 16, 0);
}

static sl_work work_of(sl_op_id op, int64_t c, uint32_t accumulate)
{
    sl_launch launch;
    sl_work work;
    CHECK_OK(sl_op_case_launch(op, &sl_op(op)->cases[c], &launch));
    launch.accumulate = accumulate;
    sl_op(op)->work(&launch, &work);
    return work;
}

TEST(bytes)
{
    sl_work add = work_of(SL_OP_ADD, 3, 0); /* bf16 [100, 512] */
    CHECK_NEAR(add.read_bytes, 2 * 100 * 512 * 2, 0);
    CHECK_NEAR(add.write_bytes, 100 * 512 * 2, 0);
    CHECK_NEAR(add.flops, 0, 0);
    sl_work once = work_of(SL_OP_MATMUL, 5, 0), twice = work_of(SL_OP_MATMUL, 5, 1); /* f32 65 x 130 x 48 */
    CHECK_NEAR(once.write_bytes, 65 * 130 * 4, 0);
    CHECK_NEAR(twice.read_bytes - once.read_bytes, 65 * 130 * 4, 0);
    sl_work adamw = work_of(SL_OP_ADAMW, 5, 0); /* bf16 [5000]: g, p, m, v in; p, m, v out */
    CHECK_NEAR(adamw.read_bytes, 5000 * 8 + 64, 0);
    CHECK_NEAR(adamw.write_bytes, 5000 * 6, 0);
    sl_work master = work_of(SL_OP_ADAMW, 8, 0); /* g, p bf16; m, v, master f32 */
    CHECK_NEAR(master.read_bytes, 5000 * 16 + 64, 0);
    CHECK_NEAR(master.write_bytes, 5000 * 14, 0);
    sl_work rows = work_of(SL_OP_EMBEDDING, 0, 0); /* W [50, 33], 19 tokens: only their rows */
    CHECK_NEAR(rows.read_bytes, 19 * 33 * 4 + 19 * 4, 0);
    sl_work add_rows = work_of(SL_OP_EMBEDDING_BWD, 0, 1);
    CHECK_NEAR(add_rows.read_bytes, 2 * 19 * 33 * 4 + 19 * 4, 0);
    CHECK_NEAR(add_rows.write_bytes, 19 * 33 * 4, 0);
    sl_work slice = work_of(SL_OP_SLICE, 0, 0), back = work_of(SL_OP_SLICE_BWD, 0, 0); /* f32 [5, 64] of [5, 96] */
    CHECK_NEAR(slice.read_bytes, 5 * 64 * 4, 0);
    CHECK_NEAR(back.write_bytes, 5 * 96 * 4, 0);
    CHECK_NEAR(work_of(SL_OP_SLICE_BWD, 0, 1).write_bytes, 5 * 64 * 4, 0);
    sl_work sums = work_of(SL_OP_GELU_BWD, 7, 3); /* f32 [530, 101] and their sums, both added to */
    CHECK_NEAR(sums.read_bytes, 3 * 530 * 101 * 4 + 101 * 4, 0);
    CHECK_NEAR(sums.write_bytes, 530 * 101 * 4 + 101 * 4, 0);
}

TEST(reads_out)
{
    sl_launch launch;
    CHECK_OK(sl_op_case_launch(SL_OP_ADAMW, &sl_op(SL_OP_ADAMW)->cases[0], &launch));
    CHECK_U64(sl_op_reads_out(&launch), 7); /* no master */
    CHECK_OK(sl_op_case_launch(SL_OP_ADAMW, &sl_op(SL_OP_ADAMW)->cases[8], &launch));
    CHECK_U64(sl_op_reads_out(&launch), 15);
    CHECK_OK(sl_op_case_launch(SL_OP_RMSNORM_BWD, &sl_op(SL_OP_RMSNORM_BWD)->cases[0], &launch));
    CHECK_U64(sl_op_reads_out(&launch), 0);
    launch.accumulate = 2;
    CHECK_U64(sl_op_reads_out(&launch), 2);
    CHECK_OK(sl_op_case_launch(SL_OP_ADD, &sl_op(SL_OP_ADD)->cases[0], &launch));
    launch.accumulate = 1; /* add cannot */
    CHECK_U64(sl_op_reads_out(&launch), 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(packed_step);
    RUN(one_sequence_step);
    RUN(sliced_step);
    RUN(window);
    RUN(attention_shares);
    RUN(bytes);
    RUN(reads_out);
    return test_end();
}
