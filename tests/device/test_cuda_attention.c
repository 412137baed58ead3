/*
 * The plain attention kernels of CUDA where conformance's small cases do not take them: enough heads that a block gets 64 rows, in
 * every size that a head dim is filled up to. And what their tiles could break:
 *   - rows of the context behind the slice hold anything (here NaN), and nobody sees them;
 *   - heads do not depend on how many there are, bit for bit, though with a few of them a block gets 32 rows.
 * And a slice so far into its sequence that cuDNN's backward takes the keys before it in several parts; and in bf16 both ways over
 * several tiles of keys and queries, whole and cut off, with and without documents, where sums must come out the same each time.
 */
#include "device/cuda_expected.h"
#include "device/device.h"
#include "ops/attention.h"
#include "ops/launch.h"

enum { MANY = 140, FEW = 8, N = 66, OFFSET = 2, BEHIND = 2, M = OFFSET + N + BEHIND };
enum { FAR = 140000, FAR_N = 64, FAR_DIM = 64 };
#define ARENA_BYTES ((size_t) 256 << 20)

static sl_device *device;
static unsigned char *arena;

/* The backward of a slice, o and lse as the reference has them. */
static void prepare(int heads, int head_dim, test_launch *t)
{
    int64_t width = (int64_t) heads * head_dim;
    sl_op_case slice = {.name = "slice",
                        .in = {SL_T2(SL_F32, N, width), SL_T2(SL_F32, N, width), SL_T2(SL_F32, M, 2 * width),
                               SL_T2(SL_F32, N, width), SL_T2(SL_F32, heads, N), SL_T1(SL_I32, 2)},
                        .segments = 1,
                        .attrs = SL_ATTRS(attention, .heads = heads, .kv_heads = heads, .head_dim = head_dim,
                                          .causal = 1, .q_offset = OFFSET, .scale = 0.2f)};
    test_prepare(t, SL_OP_ATTENTION_BWD, &slice, (uint64_t) head_dim);
}

static sl_launch forward_of(const test_launch *t)
{
    sl_launch forward = {.op = SL_OP_ATTENTION, .attrs = t->launch.attrs};
    forward.in[0] = t->launch.in[1];
    forward.in[1] = t->launch.in[2];
    forward.in[2] = t->launch.in[5];
    forward.out[0] = t->launch.in[3];
    forward.out[1] = t->launch.in[4];
    return forward;
}

/* Runs a launch whose operands lie in t's memory; they come back to where they were. */
static void run(const test_launch *t, sl_launch launch)
{
    const sl_device_class *class = device->class;
    sl_span span;
    size_t at = SL_ROUND_UP(t->bytes, (size_t) GUARD_BYTES);
    for (int k = 0; k < SL_MAX_IN + SL_MAX_OUT; k++) {
        sl_operand *x = k < SL_MAX_IN ? &launch.in[k] : &launch.out[k - SL_MAX_IN];
        x->data = x->data ? arena + ((unsigned char *) x->data - t->memory) : NULL;
    }
    launch.workspace_bytes = 0;
    launch.workspace_bytes = class->workspace(device, &launch, SL_STREAM_COMPUTE);
    launch.workspace = arena + at;
    REQUIRE(at + launch.workspace_bytes <= ARENA_BYTES);
    CHECK_OK(class->write(device, SL_TIER_DEVICE, arena, t->memory, t->bytes));
    CHECK_OK(class->step_begin(device));
    CHECK_OK(class->launch(device, SL_STREAM_COMPUTE, &launch, &span));
    CHECK_OK(class->step_end(device));
    CHECK_OK(class->read(device, SL_TIER_DEVICE, t->memory, arena, t->bytes));
}

static void spoil_rows_behind(const test_launch *t)
{
    const sl_operand *kv = &t->launch.in[2];
    int64_t width = kv->type.dim[1];
    for (int64_t i = (OFFSET + N) * width; i < M * width; i++)
        sl_put(kv, i, NAN);
}

static void check(const char *what, int head_dim, const sl_operand *got, const sl_operand *want, double tolerance)
{
    double error = test_error(got, want);
    CHECK_MSG(error <= tolerance, "head dim %d: %s is off by %.3g of its largest value, allowed %.3g", head_dim, what,
              error, tolerance);
}

/* The first FEW heads of MANY: `to` has only those. Parts of a row: q and o have one, kv has two. */
static void copy_heads(const sl_operand *from, const sl_operand *to, int parts, int head_dim)
{
    int64_t wide = from->type.dim[1] / parts, narrow = (int64_t) FEW * head_dim;
    for (int64_t row = 0; row < from->type.dim[0]; row++)
        for (int part = 0; part < parts; part++)
            memcpy((float *) to->data + (row * parts + part) * narrow,
                   (const float *) from->data + (row * parts + part) * wide, (size_t) narrow * sizeof(float));
}

static void check_bits(const char *what, const sl_operand *many, const sl_operand *few, int parts, int head_dim)
{
    sl_operand cut = *few;
    CHECK_OK(sl_alloc(&cut.data, sl_type_count(&few->type), sizeof(float)));
    copy_heads(many, &cut, parts, head_dim);
    CHECK_MSG(memcmp(cut.data, few->data, sl_type_bytes(&few->type)) == 0,
              "head dim %d: %s has other bits with %d heads than with %d", head_dim, what, FEW, MANY);
    sl_free(cut.data);
}

static void check_head_dim(int head_dim)
{
    test_launch want = {0}, many = {0}, few = {0};
    prepare(MANY, head_dim, &want);
    sl_op(SL_OP_ATTENTION_BWD)->reference(&want.launch);
    prepare(MANY, head_dim, &many);
    prepare(FEW, head_dim, &few);
    copy_heads(&many.launch.in[0], &few.launch.in[0], 1, head_dim);
    copy_heads(&many.launch.in[1], &few.launch.in[1], 1, head_dim);
    copy_heads(&many.launch.in[2], &few.launch.in[2], 2, head_dim);
    spoil_rows_behind(&many);
    spoil_rows_behind(&few);
    run(&many, forward_of(&many));
    run(&few, forward_of(&few));
    const double *tolerance[] = {sl_op(SL_OP_ATTENTION)->tolerance, sl_op(SL_OP_ATTENTION_BWD)->tolerance};
    check("o", head_dim, &many.launch.in[3], &want.launch.in[3], tolerance[0][0]);
    check("lse", head_dim, &many.launch.in[4], &want.launch.in[4], tolerance[0][0]);
    run(&many, many.launch);
    run(&few, few.launch);
    check("dq", head_dim, &many.launch.out[0], &want.launch.out[0], tolerance[1][0]);
    check("dkv", head_dim, &many.launch.out[1], &want.launch.out[1], tolerance[1][0]);
    check_bits("o", &many.launch.in[3], &few.launch.in[3], 1, head_dim);
    check_bits("dq", &many.launch.out[0], &few.launch.out[0], 1, head_dim);
    check_bits("dkv", &many.launch.out[1], &few.launch.out[1], 2, head_dim);
    test_release(&want);
    test_release(&many);
    test_release(&few);
}

TEST(many_heads)
{
    static const int head_dims[] = {24, 30, 64, 128};
    for (int i = 0; i < (int) SL_COUNT(head_dims); i++)
        check_head_dim(head_dims[i]);
}

TEST(far_keys)
{
    sl_op_case slice = {.name = "far",
                        .in = {SL_T2(SL_BF16, FAR_N, 2 * FAR_DIM), SL_T2(SL_BF16, FAR_N, 2 * FAR_DIM),
                               SL_T2(SL_BF16, FAR + FAR_N, 2 * FAR_DIM), SL_T2(SL_BF16, FAR_N, 2 * FAR_DIM),
                               SL_T2(SL_F32, 2, FAR_N), SL_T1(SL_I32, 2)},
                        .segments = 1,
                        .attrs = SL_ATTRS(attention, .heads = 2, .kv_heads = 1, .head_dim = FAR_DIM, .causal = 1,
                                          .q_offset = FAR, .uniform = FAR + FAR_N, .scale = 0.125f)};
    const double tolerance = sl_op(SL_OP_ATTENTION_BWD)->tolerance[1];
    test_launch want = {0}, got = {0};
    test_prepare(&want, SL_OP_ATTENTION_BWD, &slice, 5);
    sl_op(SL_OP_ATTENTION_BWD)->reference(&want.launch);
    for (int nondeterministic = 0; nondeterministic <= 1; nondeterministic++) {
        test_prepare(&got, SL_OP_ATTENTION_BWD, &slice, 5);
        sl_attention_set(&got.launch.attrs)->nondeterministic = nondeterministic;
        run(&got, got.launch);
        check("dq of a far slice", FAR_DIM, &got.launch.out[0], &want.launch.out[0], tolerance);
        check("dkv of a far slice", FAR_DIM, &got.launch.out[1], &want.launch.out[1], tolerance);
        test_release(&got);
    }
    test_release(&want);
}

/* Rows per sequence, keys before them; dkv apart or beside q; documents in the one sequence, of different lengths. */
typedef struct tiles_case {
    int head_dim, heads, kv_heads, sequences, rows, before, causal, wide, accumulate, beside, documents;
} tiles_case;

/* The case points to `attrs`. */
static sl_op_case tiles_of(const tiles_case *c, struct sl_attention_attrs *attrs)
{
    const int64_t n = (int64_t) c->sequences * c->rows, width = (int64_t) c->heads * c->head_dim,
                  kv_width = 2 * (int64_t) c->kv_heads * c->head_dim, q_width = width + (c->beside ? kv_width : 0);
    *attrs = (struct sl_attention_attrs){.heads = c->heads,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .causal = c->causal,
                                         .q_offset = c->before,
                                         .uniform = c->documents ? 0 : c->rows + c->before,
                                         .scale = 1 / sqrtf((float) c->head_dim)};
    sl_op_case tiles = {.name = "tiles",
                        .in = {SL_T2(SL_BF16, n, width), SL_T2(SL_BF16, n, q_width),
                               SL_T2(SL_BF16, n + c->before, kv_width), SL_T2(SL_BF16, n, width),
                               SL_T2(SL_F32, c->heads, n),
                               SL_T1(SL_I32, c->documents ? c->documents + 3 : c->sequences + 1)},
                        .segments = c->documents ? c->documents : c->sequences,
                        .accumulate = c->accumulate ? 2 : 0,
                        .wide_out = c->wide,
                        .attrs = attrs};
    if (c->beside)
        tiles.in[2] = (sl_type){.dtype = SL_BF16};
    return tiles;
}

static unsigned char *copy_of(const test_launch *t)
{
    unsigned char *copy;
    CHECK_OK(sl_alloc(&copy, (int64_t) t->bytes, 1));
    memcpy(copy, t->memory, t->bytes);
    return copy;
}

static void check_tiles(const tiles_case *c)
{
    const double tolerance = sl_op(SL_OP_ATTENTION_BWD)->tolerance[1],
                 forward_tolerance = sl_op(SL_OP_ATTENTION)->tolerance[1];
    struct sl_attention_attrs attrs;
    const sl_op_case op_case = tiles_of(c, &attrs);
    test_launch want = {0}, got = {0};
    test_prepare(&want, SL_OP_ATTENTION_BWD, &op_case, 7);
    test_prepare(&got, SL_OP_ATTENTION_BWD, &op_case, 7);
    unsigned char *before = copy_of(&got);
    sl_op(SL_OP_ATTENTION_BWD)->reference(&want.launch);
    run(&got, forward_of(&got));
    check("o of tiles", c->head_dim, &got.launch.in[3], &want.launch.in[3], forward_tolerance);
    check("lse of tiles", c->head_dim, &got.launch.in[4], &want.launch.in[4], forward_tolerance);
    run(&got, got.launch);
    check("dq of tiles", c->head_dim, &got.launch.out[0], &want.launch.out[0], tolerance);
    if (!c->beside)
        check("dkv of tiles", c->head_dim, &got.launch.out[1], &want.launch.out[1], tolerance);
    unsigned char *after = copy_of(&got);
    for (int time = 0; time < 3; time++) {
        memcpy(got.memory, before, got.bytes);
        run(&got, forward_of(&got));
        run(&got, got.launch);
        CHECK_MSG(memcmp(got.memory, after, got.bytes) == 0,
                  "head dim %d, %d rows, %d documents: other bits when run again", c->head_dim, c->rows, c->documents);
    }
    sl_free(before);
    sl_free(after);
    test_release(&want);
    test_release(&got);
}

TEST(tiles)
{
    static const tiles_case cases[] = {{64, 1, 1, 1, 128, 0, 0, 0, 0, 0, 0},    {64, 2, 1, 1, 256, 0, 1, 0, 0, 0, 0},
                                       {64, 4, 2, 3, 300, 0, 1, 0, 0, 1, 0},    {64, 2, 2, 1, 200, 256, 1, 1, 1, 0, 0},
                                       {64, 4, 1, 1, 130, 390, 1, 0, 1, 0, 0},  {64, 2, 2, 5, 70, 0, 0, 0, 0, 1, 0},
                                       {64, 24, 24, 16, 130, 0, 1, 0, 0, 1, 0}, {128, 1, 1, 1, 128, 0, 0, 0, 0, 0, 0},
                                       {128, 2, 1, 1, 256, 0, 1, 0, 0, 0, 0},   {128, 4, 2, 3, 300, 0, 1, 0, 0, 1, 0},
                                       {128, 2, 2, 1, 200, 256, 1, 1, 1, 0, 0}, {128, 4, 1, 1, 130, 390, 1, 0, 1, 0, 0},
                                       {128, 2, 2, 1, 65, 0, 1, 1, 0, 0, 0},    {128, 4, 2, 1, 512, 640, 1, 1, 1, 0, 0},
                                       {128, 16, 16, 12, 130, 0, 1, 0, 0, 1, 0}};
    for (int i = 0; i < (int) SL_COUNT(cases); i++)
        check_tiles(&cases[i]);
}

TEST(documents)
{
    static const tiles_case cases[] = {{64, 2, 1, 1, 256, 0, 1, 0, 0, 0, 2},    {64, 4, 2, 1, 1000, 0, 1, 0, 0, 1, 7},
                                       {64, 2, 2, 1, 300, 500, 1, 1, 1, 0, 5},  {64, 6, 2, 1, 900, 0, 1, 0, 0, 1, 1},
                                       {64, 2, 1, 1, 400, 0, 0, 0, 0, 1, 3},    {128, 2, 1, 1, 256, 0, 1, 0, 0, 0, 2},
                                       {128, 4, 2, 1, 1000, 0, 1, 0, 0, 1, 60}, {128, 2, 2, 1, 300, 500, 1, 1, 1, 0, 3},
                                       {128, 4, 1, 1, 130, 390, 1, 0, 1, 0, 9}, {128, 4, 2, 1, 900, 0, 1, 1, 0, 0, 4},
                                       {128, 2, 1, 1, 400, 0, 0, 0, 0, 0, 3},   {96, 2, 1, 1, 300, 0, 1, 0, 0, 1, 3}};
    for (int i = 0; i < (int) SL_COUNT(cases); i++)
        check_tiles(&cases[i]);
}

/* Queries behind the last document see nothing: whatever their o is, no gradient hears of them. */
TEST(behind_the_last_document)
{
    static const int head_dims[] = {64, 128};
    static const int32_t bounds[] = {0, 100, 256, 256};
    for (int i = 0; i < (int) SL_COUNT(head_dims); i++) {
        const tiles_case c = {head_dims[i], 2, 1, 1, 600, 0, 1, 0, 0, 0, 1};
        struct sl_attention_attrs attrs;
        const sl_op_case op_case = tiles_of(&c, &attrs);
        test_launch want = {0}, got = {0}, *both[] = {&want, &got};
        for (int k = 0; k < 2; k++) {
            test_prepare(both[k], SL_OP_ATTENTION_BWD, &op_case, 9);
            REQUIRE(sl_type_count(&both[k]->launch.in[5].type) == (int64_t) SL_COUNT(bounds));
            memcpy(both[k]->launch.in[5].data, bounds, sizeof bounds);
        }
        const sl_launch forward = forward_of(&want);
        sl_op(SL_OP_ATTENTION)->reference(&forward);
        sl_op(SL_OP_ATTENTION_BWD)->reference(&want.launch);
        run(&got, forward_of(&got));
        run(&got, got.launch);
        const double tolerance = sl_op(SL_OP_ATTENTION_BWD)->tolerance[1];
        check("dq", c.head_dim, &got.launch.out[0], &want.launch.out[0], tolerance);
        check("dkv", c.head_dim, &got.launch.out[1], &want.launch.out[1], tolerance);
        test_release(&want);
        test_release(&got);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    sl_device_config config = {.max_commands = 64, .max_events = 8};
    config.arena_bytes[SL_TIER_DEVICE] = ARENA_BYTES;
    if (sl_device_open("cuda", &config, &device) != SL_OK) {
        test_cuda_missing(sl_error_message());
        SKIP("no GPU: %s", sl_error_message());
    }
    arena = device->class->arena(device, SL_TIER_DEVICE);
    RUN(many_heads);
    RUN(far_keys);
    RUN(tiles);
    RUN(documents);
    RUN(behind_the_last_document);
    sl_device_close(device);
    return test_end();
}
