/* The references themselves: against values from PyTorch, and against the properties that the ops promise. The rest of the
 * proof is elsewhere: gradients in test_ops_gradient, kernels in test_conformance. */
#include "ops/attention.h"
#include "ops/gelu.h"
#include "ops/head_loss.h"
#include "ops/norm.h"
#include "ops/operands.h"
#include "ops/qk_norm.h"
#include "ops/reduce.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

/* ---- values from PyTorch 2 ---- */

TEST(norms)
{
    float x[] = {0.5f, -1.25f, 2, 0.125f}, w[] = {1.5f, 0.5f, -1, 2}, b[] = {0.25f, -0.5f, 0.75f, 1}, y[4], rstd[1],
          mean[1];
    sl_launch rms = {.op = SL_OP_RMSNORM, .in = {f32(x, 1, 4), f32(w, 4, 0)}, .out = {f32(y, 1, 4), f32(rstd, 1, 0)}};
    sl_norm_set(&rms.attrs)->eps = 1e-5f;
    run(&rms);
    check_values(y, (const float[]){0.6213343143f, -0.5177785754f, -1.6568914652f, 0.2071114331f}, 4, "rmsnorm");
    sl_launch ln = {.op = SL_OP_LAYERNORM,
                    .in = {f32(x, 1, 4), f32(w, 4, 0), f32(b, 4, 0)},
                    .out = {f32(y, 1, 4), f32(mean, 1, 0), f32(rstd, 1, 0)}};
    sl_norm_set(&ln.attrs)->eps = 1e-5f;
    run(&ln);
    check_values(y, (const float[]){0.4525540471f, -1.1886837482f, -0.6813819408f, 0.6218991280f}, 4, "layernorm");
    check_values(mean, (const float[]){0.34375f}, 1, "mean");
}

TEST(activations)
{
    float x[] = {0.5f, -1.25f, 2, 0.125f}, y[4];
    sl_launch gelu = {.op = SL_OP_GELU, .in = {f32(x, 1, 4)}, .out = {f32(y, 1, 4)}};
    run(&gelu);
    check_values(y, (const float[]){0.3457312286f, -0.1320622116f, 1.9544997215f, 0.0687172785f}, 4, "gelu");
    sl_gelu_set(&gelu.attrs)->tanh = 1;
    run(&gelu);
    check_values(y, (const float[]){0.3457140028f, -0.1322858036f, 1.9545977116f, 0.0687171966f}, 4, "gelu tanh");
    sl_launch swiglu = {.op = SL_OP_SWIGLU, .in = {f32(x, 1, 4)}, .out = {f32(y, 1, 2)}};
    run(&swiglu);
    check_values(y, (const float[]){0.6224593520f, -0.0347968973f}, 2, "swiglu");
    sl_swiglu_set(&swiglu.attrs)->gelu = 1;
    run(&swiglu);
    check_values(y, (const float[]){0.6914280056f, -0.0165357255f}, 2, "geglu");
}

TEST(variants)
{
    float x[] = {0.5f, -1.25f, 2, 0.125f}, w[] = {0.25f, -0.5f, 0, 1}, y[8], rstd[2], loss[1], logits[2];
    sl_launch rms = {.op = SL_OP_RMSNORM, .in = {f32(x, 1, 4), f32(w, 4, 0)}, .out = {f32(y, 1, 4), f32(rstd, 1, 0)}};
    sl_norm_set(&rms.attrs)->offset = 1;
    run(&rms);
    const float r = 1 / sqrtf(5.828125f / 4), rq = 1 / sqrtf(27.0f / 4), rk = 1 / sqrtf(53.0f / 2);
    check_values(y, (const float[]){0.625f * r, -0.625f * r, 2 * r, 0.25f * r}, 4, "rmsnorm with an offset");
    float qkv[] = {3, 4, 1, -1, 2, 7, 5, 6}, wq[] = {1, 2, 3, 4}, wk[] = {0.5f, 2}; /* heads of 2: q q k v */
    sl_launch qk = {.op = SL_OP_QK_NORM, .in = {f32(qkv, 1, 8), f32(wq, 4, 0), f32(wk, 2, 0)}};
    qk.out[0] = f32(y, 1, 8), qk.out[1] = f32(rstd, 1, 2);
    *sl_qk_norm_set(&qk.attrs) = *SL_ATTRS(qk_norm, .heads = 2, .kv_heads = 1, .head_dim = 2, .whole = 1);
    run(&qk);
    check_values(y, (const float[]){3 * rq, 8 * rq, 3 * rq, -4 * rq, rk, 14 * rk, 5, 6}, 8, "qk_norm of all heads");
    sl_launch head = {.op = SL_OP_HEAD_LOSS, .in = {f32((float[]){1}, 1, 1), f32((float[]){0, 1000}, 2, 1)}};
    head.out[0] = f32(loss, 1, 0), head.in[2] = i32((int32_t[]){0}, 1), head.workspace = logits,
    head.workspace_bytes = sizeof logits;
    sl_head_set(&head.attrs)->ignore = -100, sl_head_set(&head.attrs)->cap = 2;
    run(&head);
    check_values(loss, (const float[]){2.1269280110f}, 1, "log(1 + e^2)");
}

/* Where an op sums the columns of what it writes, or of what it finds there, it does what bias_grad does with that. */
TEST(column_sums)
{
    int cases = 0;
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *def = sl_op((sl_op_id) op);
        int sums_at = SL_MAX(def->sums_after, def->sums_before);
        for (int64_t c = 0; sums_at && c < def->n_cases; c++) {
            test_launch t = {0};
            bool something = def->sums_after || (def->cases[c].accumulate & 1u);
            if (!def->cases[c].optional_out || def->cases[c].in[0].dtype != SL_F32 || !something)
                continue;
            test_prepare(&t, (sl_op_id) op, &def->cases[c], 5);
            const sl_operand *sums = &t.launch.out[sums_at];
            sl_launch bias = {.op = SL_OP_BIAS_GRAD, .in = {t.launch.out[0]}, .out = {*sums}};
            CHECK_OK(sl_alloc(&bias.out[0].data, sl_type_bytes(&sums->type), 1));
            memcpy(bias.out[0].data, sums->data, sl_type_bytes(&sums->type));
            bias.accumulate = t.launch.accumulate >> sums_at & 1u;
            run(def->sums_after ? &t.launch : &bias);
            run(def->sums_after ? &bias : &t.launch);
            CHECK_MSG(test_error(sums, &bias.out[0]) < 1e-6, "%s %s: other sums than bias_grad", def->name,
                      def->cases[c].name);
            sl_free(bias.out[0].data);
            test_release(&t);
            cases++;
        }
    }
    CHECK(cases > 0);
}

/* Two query heads on one K/V head. */
TEST(attention_values)
{
    float q[] = {0.5f, 1, -0.25f, 0.75f, 1.5f, -0.5f, 0.25f, 0.125f}, kv[] = {0.25f, -1, 1, 2, 0.5f, 2, -3, 4}, o[8],
          lse[4];
    int32_t segments[] = {0, 2};
    sl_launch launch = {.op = SL_OP_ATTENTION,
                        .in = {f32(q, 2, 4), f32(kv, 2, 4), i32(segments, 2)},
                        .out = {f32(o, 2, 4), f32(lse, 2, 2)}};
    sl_attention_set(&launch.attrs)->heads = 2;
    sl_attention_set(&launch.attrs)->kv_heads = 1;
    sl_attention_set(&launch.attrs)->head_dim = 2;
    sl_attention_set(&launch.attrs)->causal = 1;
    sl_attention_set(&launch.attrs)->scale = 0.7f;
    run(&launch);
    const float want[] = {1, 2, 1, 2, -0.2508229315f, 2.6254115105f, -1.3038785458f, 3.1519391537f};
    check_values(o, want, 8, "o");
    check_values(lse, (const float[]){-0.6125f, 0.9874926805f, -0.5687499642f, 0.8142002225f}, 4, "lse");
}

TEST(head_values)
{
    float x[] = {0.5f, -1, 2, 0.25f, 1, 1}, w[] = {1, 0.5f, -0.5f, 0.25f, 0.75f, -1.5f, 0, 2}, loss[1], dx[6], dw[8],
          logits[12];
    int32_t targets[] = {2, -100, 3};
    sl_step_params step = {.loss_scale = 0.5f};
    sl_launch launch = {.op = SL_OP_HEAD_LOSS_BWD,
                        .in = {f32(x, 3, 2), f32(w, 4, 2), i32(targets, 3), step_operand(&step)},
                        .out = {f32(loss, 1, 0), f32(dx, 3, 2), f32(dw, 4, 2)},
                        .workspace = logits,
                        .workspace_bytes = sizeof logits};
    sl_head_set(&launch.attrs)->ignore = -100;
    for (int block = 0; block <= 3; block++) { /* in f32 the block hardly matters */
        sl_head_set(&launch.attrs)->block = block;
        run(&launch);
        check_values(loss, (const float[]){0.8110332489f}, 1, "loss");
        check_values(dx, (const float[]){-0.0368926637f, 0.2139196992f, 0, 0, 0.1694327593f, -0.3710860908f}, 6, "dx");
        check_values(dw,
                     (const float[]){0.2010276914f, 0.1102581695f, 0.0480270796f, -0.0070274174f, -0.0347036347f,
                                     0.1234047189f, -0.2143511474f, -0.2266354710f},
                     8, "dw");
    }
}

static const float gradients[3][2] = {{0.5f, -2}, {0.25f, 1}, {-0.125f, 0.0625f}};

TEST(adamw_values)
{
    float g[2], p[] = {1, -0.5f}, m[] = {0, 0}, v[] = {0, 0};
    sl_step_params step = {.learning_rate = 0.01f};
    sl_launch launch = {.op = SL_OP_ADAMW,
                        .in = {f32(g, 2, 0), step_operand(&step)},
                        .out = {f32(p, 2, 0), f32(m, 2, 0), f32(v, 2, 0)}};
    sl_adamw_set(&launch.attrs)->beta1 = 0.9f;
    sl_adamw_set(&launch.attrs)->beta2 = 0.999f;
    sl_adamw_set(&launch.attrs)->eps = 1e-8f;
    sl_adamw_set(&launch.attrs)->weight_decay = 0.1f;
    sl_adamw_set(&launch.attrs)->decayed = 2;
    for (int t = 0; t < 3; t++) {
        memcpy(g, gradients[t], sizeof g);
        step.corrections[0][0] = (float) (1 - pow(0.9, t + 1));
        step.corrections[0][1] = (float) (1 - pow(0.999, t + 1));
        run(&launch);
    }
    check_values(p, (const float[]){0.9720739722f, -0.4839814603f}, 2, "adamw p");
    check_values(m, (const float[]){0.0505f, -0.06575f}, 2, "adamw m");
    check_values(v, (const float[]){0.0003275628f, 0.0049949107f}, 2, "adamw v");
}

TEST(sgd_values)
{
    float g[2], p[] = {1, -0.5f}, b[] = {0, 0};
    sl_step_params step = {.learning_rate = 0.1f};
    sl_launch launch = {
        .op = SL_OP_SGD, .in = {f32(g, 2, 0), step_operand(&step)}, .out = {f32(p, 2, 0), f32(b, 2, 0)}};
    sl_sgd_set(&launch.attrs)->momentum = 0.9f;
    sl_sgd_set(&launch.attrs)->weight_decay = 0.01f;
    sl_sgd_set(&launch.attrs)->decayed = 2;
    for (int t = 0; t < 3; t++) {
        memcpy(g, gradients[t], sizeof g);
        run(&launch);
    }
    check_values(p, (const float[]){0.8241097331f, -0.1521071643f}, 2, "sgd p");
    check_values(b, (const float[]){0.5304125547f, -0.6664330959f}, 2, "sgd buffer");
}

/* Hugging Face's "llama3" scaling of theta 500000, head_dim 128: untouched, blended and slowed frequencies. */
TEST(rope_frequencies)
{
    const struct {
        int64_t j;
        double want;
    } table[] = {{0, 1},
                 {5, 0.3587302237512899},
                 {27, 0.003942276030116656},
                 {30, 0.001371893567761138},
                 {33, 0.00031269375038406517},
                 {36, 7.78465527393245e-05},
                 {63, 3.068925988914511e-07}};
    sl_attrs attrs = {0};
    sl_rope_set(&attrs)->head_dim = 128;
    sl_rope_set(&attrs)->theta = 500000;
    sl_rope_set(&attrs)->factor = 8;
    sl_rope_set(&attrs)->low_freq_factor = 1;
    sl_rope_set(&attrs)->high_freq_factor = 4;
    sl_rope_set(&attrs)->original_context = 8192;
    for (int64_t i = 0; i < SL_COUNT(table); i++)
        CHECK_NEAR(sl_rope_frequency(&attrs, NULL, table[i].j), table[i].want, 1e-12 * table[i].want);
    sl_rope_set(&attrs)->head_dim = 256; /* they are those of the part that turns */
    sl_rope_set(&attrs)->rotary = 128;
    for (int64_t i = 0; i < SL_COUNT(table); i++)
        CHECK_NEAR(sl_rope_frequency(&attrs, NULL, table[i].j), table[i].want, 1e-12 * table[i].want);
}

/* Frequencies that transformers computes, in f32, for head_dim 128. */
TEST(scaled_rope_frequencies)
{
    static const int64_t pairs[] = {0, 1, 20, 24, 30, 40, 63};
    static const struct {
        struct sl_rope_attrs attrs;
        double want[7];
    } table[] = {{{.scaling = SL_ROPE_LINEAR, .theta = 1e6f, .factor = 8},
                  {0.125, 0.100730278, 0.00166690187, 0.000702926656, 0.000192490814, 2.22284925e-05, 1.5511722e-07}},
                 {{.scaling = SL_ROPE_DYNAMIC, .theta = 1e4f, .factor = 2, .original_context = 4096, .seqlen = 8192},
                  {1, 0.850994289, 0.0396764651, 0.0208084397, 0.00790313538, 0.00157422165, 3.84927334e-05}},
                 {{.scaling = SL_ROPE_YARN,
                   .theta = 1e6f,
                   .factor = 4,
                   .low_freq_factor = 1,
                   .high_freq_factor = 32,
                   .original_context = 32768},
                  {1, 0.805842221, 0.0133352149, 0.00537532149, 0.00106436096, 4.44569851e-05, 3.10234441e-07}},
                 {{.scaling = SL_ROPE_YARN,
                   .theta = 150000,
                   .factor = 32,
                   .low_freq_factor = 1,
                   .high_freq_factor = 32,
                   .original_context = 4096,
                   .exact_ramp = 1},
                  {1, 0.830086946, 0.0193349998, 0.00679495931, 0.00105260219, 1.8188337e-05, 2.50977735e-07}}};
    for (int64_t t = 0; t < SL_COUNT(table); t++) {
        sl_attrs attrs = {0};
        *sl_rope_set(&attrs) = table[t].attrs;
        sl_rope_set(&attrs)->head_dim = 128;
        for (int64_t i = 0; i < SL_COUNT(pairs); i++)
            CHECK_NEAR(sl_rope_frequency(&attrs, NULL, pairs[i]), table[t].want[i], 5e-6 * table[t].want[i]);
        if (table[t].attrs.scaling == SL_ROPE_DYNAMIC) { /* nothing changes within the original context */
            sl_rope_set(&attrs)->seqlen = 4096;
            CHECK_NEAR(sl_rope_frequency(&attrs, NULL, 20), pow(1e4, -40.0 / 128), 1e-12);
        }
    }
}

/* ---- properties ---- */

/* Position 1 turns the first pair by one radian; which elements are the pair is the style. */
TEST(rope_styles)
{
    float qkv[12] = {1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8}, q[4], kv[8];
    int32_t position[] = {1};
    sl_launch launch = {
        .op = SL_OP_ROPE, .in = {f32(qkv, 1, 12), i32(position, 1)}, .out = {f32(q, 1, 4), f32(kv, 1, 8)}};
    sl_rope_set(&launch.attrs)->heads = sl_rope_set(&launch.attrs)->kv_heads = 1;
    sl_rope_set(&launch.attrs)->head_dim = 4;
    sl_rope_set(&launch.attrs)->theta = 10000; /* frequencies 1 and .01 */
    float c = cosf(1), s = sinf(1), c2 = cosf(0.01f), s2 = sinf(0.01f);
    sl_rope_set(&launch.attrs)->style = SL_ROPE_HALF;
    run(&launch);
    check_values(q, (const float[]){c - 3 * s, 2 * c2 - 4 * s2, 3 * c + s, 4 * c2 + 2 * s2}, 4, "half");
    check_values(kv, q, 4, "k as q");
    check_values(kv + 4, qkv + 8, 4, "v copied");
    sl_rope_set(&launch.attrs)->style = SL_ROPE_INTERLEAVED;
    run(&launch);
    check_values(q, (const float[]){c - 2 * s, 2 * c + s, 3 * c2 - 4 * s2, 4 * c2 + 3 * s2}, 4, "interleaved");
    sl_rope_set(&launch.attrs)->style = SL_ROPE_HALF;
    sl_rope_set(&launch.attrs)->rotary = 2;
    run(&launch);
    check_values(q, (const float[]){c - 2 * s, 2 * c + s, 3, 4}, 4, "two of four elements");
    check_values(kv, q, 4, "k as q");
    sl_rope_set(&launch.attrs)->style = SL_ROPE_NONE;
    run(&launch);
    check_values(q, qkv, 4, "none");
}

enum { M = 24, H = 4, G = 2, E = 6, QW = H * E, KW = 2 * G * E };

typedef struct attention_scene {
    float q[M * QW], kv[M * KW], d_o[M * QW], o[M * QW], lse[H * M], dq[M * QW], dkv[M * KW];
    int32_t segments[4];
} attention_scene;

/* Forward and backward of queries [offset, offset + n) over the first m rows. */
static void run_attention(attention_scene *s, int64_t offset, int64_t n, int64_t m, bool accumulate)
{
    float lse[H * M];
    sl_launch forward = {.op = SL_OP_ATTENTION,
                         .in = {f32(s->q + offset * QW, n, QW), f32(s->kv, m, KW), i32(s->segments, 4)},
                         .out = {f32(s->o + offset * QW, n, QW), f32(lse, H, n)}};
    sl_attention_set(&forward.attrs)->heads = H;
    sl_attention_set(&forward.attrs)->kv_heads = G;
    sl_attention_set(&forward.attrs)->head_dim = E;
    sl_attention_set(&forward.attrs)->causal = 1;
    sl_attention_set(&forward.attrs)->q_offset = offset;
    sl_attention_set(&forward.attrs)->scale = 0.4f;
    run(&forward);
    for (int64_t head = 0; head < H; head++)
        memcpy(s->lse + head * M + offset, lse + head * n, (size_t) n * sizeof(float));
    sl_launch backward = {.op = SL_OP_ATTENTION_BWD,
                          .accumulate = accumulate ? 2 : 0,
                          .in = {f32(s->d_o + offset * QW, n, QW), forward.in[0], forward.in[1], forward.out[0],
                                 forward.out[1], forward.in[2]},
                          .out = {f32(s->dq + offset * QW, n, QW), f32(s->dkv, m, KW)},
                          .attrs = forward.attrs};
    run(&backward);
}

static void fill_scene(attention_scene *s)
{
    random_floats(s->q, SL_COUNT(s->q), 1);
    random_floats(s->kv, SL_COUNT(s->kv), 2);
    random_floats(s->d_o, SL_COUNT(s->d_o), 3);
    memcpy(s->segments, (const int32_t[]){0, 9, 20, M}, sizeof s->segments);
}

/* Slices taken in reverse, adding into their context, give what the whole gives. */
TEST(attention_slices)
{
    static attention_scene whole, sliced;
    fill_scene(&whole);
    fill_scene(&sliced);
    run_attention(&whole, 0, M, M, false);
    run_attention(&sliced, 16, 8, M, false);
    run_attention(&sliced, 5, 11, 16, true);
    run_attention(&sliced, 0, 5, M, true); /* rows behind the slice are allowed and get nothing */
    CHECK(memcmp(whole.o, sliced.o, sizeof whole.o) == 0);
    CHECK(memcmp(whole.lse, sliced.lse, sizeof whole.lse) == 0);
    CHECK(memcmp(whole.dq, sliced.dq, sizeof whole.dq) == 0);
    check_values(sliced.dkv, whole.dkv, M * KW, "dkv of slices");
}

/* Sequences packed into one launch do not see each other: nothing of another one changes a bit. */
TEST(attention_packed)
{
    static attention_scene before, after;
    fill_scene(&before);
    fill_scene(&after);
    for (int64_t i = 9 * KW; i < 20 * KW; i++)
        after.kv[i] += 1;
    run_attention(&before, 0, M, M, false);
    run_attention(&after, 0, M, M, false);
    CHECK(memcmp(before.o, after.o, 9 * QW * sizeof(float)) == 0);
    CHECK(memcmp(before.o + 9 * QW, after.o + 9 * QW, QW * sizeof(float)) != 0);
    CHECK(memcmp(before.o + 20 * QW, after.o + 20 * QW, 4 * QW * sizeof(float)) == 0);
    CHECK(memcmp(before.dkv, after.dkv, 9 * KW * sizeof(float)) == 0);
}

TEST(attention_rows)
{
    const int32_t segments[] = {0, 4, 10, 10, 10};
    sl_attrs attrs = {0};
    int64_t first, end;
    sl_attention_set(&attrs)->q_offset = 3;
    sl_attention_set(&attrs)->causal = 1;
    sl_attention_rows(&attrs, segments, 5, 10, 0, &first, &end);
    CHECK(first == 0 && end == 4);
    sl_attention_rows(&attrs, segments, 5, 10, 1, &first, &end);
    CHECK(first == 4 && end == 5);
    sl_attention_set(&attrs)->causal = 0;
    sl_attention_rows(&attrs, segments, 5, 10, 6, &first, &end);
    CHECK(first == 4 && end == 10);
    sl_attention_rows(&attrs, segments, 3, 8, 1, &first, &end); /* a boundary past the context counts as its end */
    CHECK(first == 4 && end == 8);
}

/* The law of sums, spelled level by level. */
TEST(sum_tree)
{
    static float x[11 * SL_SUM_BLOCK];
    random_floats(x, SL_COUNT(x), 4);
    for (int64_t blocks = 1; blocks <= 11; blocks++) {
        int64_t n = blocks * SL_SUM_BLOCK - 100, level = blocks;
        float block[11], got;
        for (int64_t b = 0; b < blocks; b++) {
            float lane[SL_SUM_LANES] = {0};
            for (int64_t i = b * SL_SUM_BLOCK; i < SL_MIN(n, (b + 1) * SL_SUM_BLOCK); i++)
                lane[i % SL_SUM_LANES] = fmaf(x[i], x[i], lane[i % SL_SUM_LANES]);
            for (int64_t half = 32; half; half /= 2)
                for (int64_t l = 0; l < half; l++)
                    lane[l] += lane[l + half];
            block[b] = lane[0];
        }
        for (; level > 1; level = (level + 1) / 2)
            for (int64_t i = 0; i < (level + 1) / 2; i++)
                block[i] = 2 * i + 1 < level ? block[2 * i] + block[2 * i + 1] : block[2 * i];
        sl_launch launch = {.op = SL_OP_SUM_SQUARES, .in = {f32(x, n, 0)}, .out = {f32(&got, 1, 0)}};
        run(&launch);
        CHECK_MSG(got == block[0], "%lld blocks give %.9g, not %.9g", (long long) blocks, (double) got,
                  (double) block[0]);
    }
}

TEST(gate)
{
    float partial[] = {9, 16}, gate[4];
    sl_step_params step = {.clip = 2.5f};
    sl_launch launch = {
        .op = SL_OP_GRAD_GATE, .in = {f32(partial, 2, 0), step_operand(&step)}, .out = {f32(gate, 4, 0)}};
    run(&launch);
    check_values(gate, (const float[]){0.5f, 5, 0, 0}, 4, "clipped");
    step.clip = 6;
    run(&launch);
    check_values(gate, (const float[]){1, 5, 0, 0}, 4, "under the limit");
    step.clip = 0;
    run(&launch);
    check_values(gate, (const float[]){1, 5, 0, 0}, 4, "no limit");
    partial[1] = NAN;
    run(&launch);
    CHECK(gate[0] == 0 && isnan(gate[1]) && gate[2] == 1);
}

static void widen(const sl_operand *to, const sl_operand *from)
{
    for (int64_t i = 0; i < sl_type_count(&from->type); i++)
        if (from->type.dtype == SL_I32)
            ((int32_t *) to->data)[i] = sl_get_i32(from, i);
        else
            sl_put(to, i, sl_get(from, i));
}

/* Each element is the nearest bf16 (what is halfway may go either way), or the same f32. */
static void check_rounded(const char *op, const char *name, int k, const sl_operand *narrow, const sl_operand *wide)
{
    const double half_ulp = narrow->type.dtype == SL_BF16 ? 0x1p-8 : 0;
    for (int64_t i = 0; i < sl_type_count(&narrow->type); i++) {
        double got = (double) sl_get(narrow, i), want = (double) sl_get(wide, i);
        if (isfinite(want) ? !(fabs(got - want) <= half_ulp * fabs(want)) : isfinite(got))
            CHECK_MSG(false, "%s %s: output %d: element %" PRId64 " is %.9g, but %.9g in f32", op, name, k, i, got,
                      want);
    }
}

/* A bf16 launch is the f32 launch on the same values, rounded once at the end. */
static void check_narrow(sl_op_id op, const sl_op_case *op_case)
{
    const sl_op_def *def = sl_op(op);
    sl_op_case wide_case = *op_case;
    test_launch narrow = {0}, wide = {0};
    for (int i = 0; i < def->n_in; i++)
        if (wide_case.in[i].dtype == SL_BF16)
            wide_case.in[i].dtype = SL_F32;
    test_prepare(&narrow, op, op_case, 5);
    test_prepare(&wide, op, &wide_case, 5);
    for (int i = 0; i < def->n_in; i++)
        widen(&wide.launch.in[i], &narrow.launch.in[i]);
    for (int k = 0; k < def->n_out; k++)
        widen(&wide.launch.out[k], &narrow.launch.out[k]);
    run(&narrow.launch);
    run(&wide.launch);
    for (int k = 0; k < def->n_out; k++) {
        double error = test_error(&narrow.launch.out[k], &wide.launch.out[k]);
        CHECK_MSG(error <= SL_BF16_ULP, "%s %s: output %d differs by %g from f32", def->name, op_case->name, k, error);
        if (op != SL_OP_HEAD_LOSS_BWD) /* keeps the gradients of the logits in bf16 on the way */
            check_rounded(def->name, op_case->name, k, &narrow.launch.out[k], &wide.launch.out[k]);
    }
    test_release(&narrow);
    test_release(&wide);
}

TEST(bf16_is_rounded_f32)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *def = sl_op((sl_op_id) op);
        for (int64_t c = 0; c < def->n_cases; c++)
            if (def->cases[c].in[0].dtype == SL_BF16 && op != SL_OP_CAST && def->category != SL_CAT_OPTIMIZER)
                check_narrow((sl_op_id) op, &def->cases[c]);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(norms);
    RUN(activations);
    RUN(variants);
    RUN(column_sums);
    RUN(attention_values);
    RUN(head_values);
    RUN(adamw_values);
    RUN(sgd_values);
    RUN(rope_frequencies);
    RUN(scaled_rope_frequencies);
    RUN(rope_styles);
    RUN(attention_slices);
    RUN(attention_packed);
    RUN(attention_rows);
    RUN(sum_tree);
    RUN(gate);
    RUN(bf16_is_rounded_f32);
    return test_end();
}
