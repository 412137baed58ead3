/* Jobs with a model of one's own: the bits of the same model built in, under any budget, and checkpoints, resumes,
 * files and options. */
#include <math.h>

#include "model/safetensors.h"
#include "run_job.h"
#include "sluice/model.h"

/* ---- a Llama of the public builder, with the names of byte-test's tensors ---- */

typedef struct llama {
    int64_t layers, dim, ffn, vocab;
    int32_t heads, kv_heads, head_dim;
    sl_status failure; /* of the callback itself */
} llama;

static const llama byte_test = {2, 64, 176, 256, 4, 2, 16, SL_OK};

static sl_var norm(sl_builder *b, const char *name, sl_var x, int64_t dim)
{
    return sl_build_rmsnorm(
        b, name, x, sl_build_parameter(b, SL_PARAMETER(.name = name, .rows = dim, .init = SL_INIT_ONES)), 1e-5f);
}

static sl_var linear(sl_builder *b, sl_var x, sl_parameter_def parameter)
{
    parameter.struct_size = sizeof parameter;
    parameter.columns = sl_build_columns(b, x);
    parameter.init = SL_INIT_NORMAL;
    parameter.std = 0.02f;
    return sl_build_linear(b, parameter.name, x, sl_build_parameter(b, &parameter), (sl_var){0});
}

static sl_status build(void *user, sl_builder *b)
{
    const llama *m = user;
    int64_t a = m->heads * m->head_dim, k = m->kv_heads * m->head_dim;
    if (m->failure)
        return sl_error_set(m->failure, "no layers today");
    sl_build_block(b, "embedding", "model");
    sl_var table = sl_build_parameter(b, SL_PARAMETER(.name = "embed_tokens.weight", .rows = m->vocab,
                                                      .columns = m->dim, .init = SL_INIT_NORMAL, .std = 0.02f));
    sl_var x = sl_build_embedding(b, "embedding", table, sl_build_tokens(b));
    for (int64_t i = 0; i < m->layers; i++) {
        sl_build_layer(b, i, "model.layers");
        sl_build_group(b, "attention");
        sl_var h = norm(b, "input_layernorm.weight", x, m->dim);
        h = linear(b, h,
                   (sl_parameter_def){.name = "qkv",
                                      .rows = a + 2 * k,
                                      .parts = {{"self_attn.q_proj.weight", a, 0},
                                                {"self_attn.k_proj.weight", k, 0},
                                                {"self_attn.v_proj.weight", k, 0}}});
        h = sl_build_attention(
            b, "attention", h,
            SL_ATTENTION(.heads = m->heads, .kv_heads = m->kv_heads, .head_dim = m->head_dim, .rope_theta = 10000));
        h = linear(b, h, (sl_parameter_def){.name = "self_attn.o_proj.weight", .rows = m->dim});
        x = sl_build_add(b, "attention_add", x, h);
        sl_build_group(b, "mlp");
        h = norm(b, "post_attention_layernorm.weight", x, m->dim);
        h = linear(
            b, h,
            (sl_parameter_def){.name = "gate_up",
                               .rows = 2 * m->ffn,
                               .parts = {{"mlp.gate_proj.weight", m->ffn, 0}, {"mlp.up_proj.weight", m->ffn, 0}}});
        h = linear(b, sl_build_swiglu(b, "swiglu", h),
                   (sl_parameter_def){.name = "mlp.down_proj.weight", .rows = m->dim});
        x = sl_build_add(b, "mlp_add", x, h);
    }
    sl_build_block(b, "head", "");
    x = norm(b, "model.norm.weight", x, m->dim);
    sl_var head = sl_build_parameter(b, SL_PARAMETER(.name = "lm_head.weight", .rows = m->vocab, .columns = m->dim,
                                                     .init = SL_INIT_NORMAL, .std = 0.02f));
    sl_build_loss(b, "loss", x, head, 1);
    return SL_OK;
}

static sl_model_def def_of(llama *m)
{
    return (sl_model_def){.struct_size = sizeof(sl_model_def),
                          .name = "mine",
                          .identity = "llama of 2 layers",
                          .vocab = m->vocab,
                          .build = build,
                          .user = m};
}

/* make_job without its model. */
static sl_job *model_job(const char *options, const sl_model_def *def)
{
    static const char *const keys[] = {"seqlen",       "32",   "tokens-per-step", "192",
                                       "chunk-tokens", "64",   "steps",           "5",
                                       "lr",           "3e-3", "costs",           "roofline"};
    char copy[2048], *rest = copy;
    sl_job *job;
    CHECK_OK(sl_job_create(&job));
    for (int i = 0; i < SL_COUNT(keys); i += 2)
        CHECK_OK(sl_job_set(job, keys[i], keys[i + 1]));
    CHECK_OK(sl_job_set(job, "data", corpus_path()));
    CHECK_OK(sl_job_set(job, "device", getenv("SLUICE_TEST_DEVICE") ? getenv("SLUICE_TEST_DEVICE") : "cpu"));
    snprintf(copy, sizeof copy, "%s", options);
    for (char *key; (key = next_word(&rest)) != NULL;)
        CHECK_OK(sl_job_set(job, key, next_word(&rest)));
    CHECK_OK(sl_job_set_model(job, def));
    return job;
}

static void run_model(const char *options, const sl_model_def *def, outcome *out)
{
    sl_job *job = model_job(options, def);
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    memset(out, 0, sizeof *out);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    while (!result.done)
        CHECK_OK(sl_trainer_step(t, &result));
    sl_trainer_look(t, &out->view);
    read_report(t, out);
    sl_trainer_destroy(t);
}

/* ---- bits ---- */

static void check_same_tensors(const char *a, const char *b)
{
    sl_tensors *x, *y;
    CHECK_OK(sl_tensors_open(a, &x));
    CHECK_OK(sl_tensors_open(b, &y));
    CHECK_I64(sl_tensors_count(x), sl_tensors_count(y));
    for (int64_t i = 0; i < sl_tensors_count(x); i++) {
        const sl_tensor *p = sl_tensors_at(x, i), *q = sl_tensors_find(y, p->name);
        unsigned char *left, *right;
        REQUIRE(q && p->bytes == q->bytes);
        CHECK_OK(sl_alloc(&left, p->bytes, 1));
        CHECK_OK(sl_alloc(&right, p->bytes, 1));
        CHECK_OK(sl_tensors_read_raw(x, p, 0, left, (size_t) p->bytes));
        CHECK_OK(sl_tensors_read_raw(y, q, 0, right, (size_t) q->bytes));
        CHECK_MSG(memcmp(left, right, (size_t) p->bytes) == 0, "%s differs", p->name);
        sl_free(left);
        sl_free(right);
    }
    sl_tensors_close(x);
    sl_tensors_close(y);
}

/* From the weights of a built-in model, by name, the same model of the builder trains to the same bits. */
TEST(the_bits_of_the_family)
{
    static const char *const shapes[] = {"precision f32", "precision bf16-master", "precision f32 chunk-tokens 16",
                                         "precision f32 device-mem 600KiB val-every 2 val-share 0.1"};
    char options[2048], initial[1024], built_in[1024], mine[1024];
    llama m = byte_test;
    sl_model_def def = def_of(&m);
    outcome family, own;
    snprintf(options, sizeof options, "steps 1 lr 0 min-lr 0 precision f32 out '%s'", test_path("initial"));
    run_job(options, 1, &family);
    snprintf(initial, sizeof initial, "%s/checkpoints/step-00000001/model.safetensors", test_path("initial"));
    for (int i = 0; i < SL_COUNT(shapes); i++) {
        char a[32], b[32];
        snprintf(a, sizeof a, "family-%d", i);
        snprintf(b, sizeof b, "own-%d", i);
        snprintf(options, sizeof options, "%s init-from '%s' out '%s'", shapes[i], initial, test_path(a));
        run_job(options, 100, &family);
        snprintf(options, sizeof options, "%s init-from '%s' out '%s'", shapes[i], initial, test_path(b));
        run_model(options, &def, &own);
        CHECK_MSG(family.steps == own.steps && memcmp(family.loss, own.loss, sizeof own.loss) == 0, "%s", shapes[i]);
        CHECK(family.view.val_loss == own.view.val_loss && family.view.parameters == own.view.parameters);
        snprintf(built_in, sizeof built_in, "%s/checkpoints/step-00000005", test_path(a));
        snprintf(mine, sizeof mine, "%s/checkpoints/step-00000005", test_path(b));
        check_same_tensors(built_in, mine);
    }
}

TEST(budgets_change_no_bit)
{
    static const char *const precisions[] = {"f32", "bf16", "bf16-master"};
    static const char *const budgets[] = {"", "device-mem 60%", "device-mem 45% threads 1",
                                          "device-mem 50% chunks-per-round 1"};
    llama m = byte_test;
    sl_model_def def = def_of(&m);
    for (int p = 0; p < SL_COUNT(precisions); p++) {
        outcome first, out;
        for (int b = 0; b < SL_COUNT(budgets); b++) {
            char options[200];
            snprintf(options, sizeof options, "precision %s %s", precisions[p], budgets[b]);
            run_model(options, &def, b ? &out : &first);
            CHECK_MSG(!b || same_run(&first, &out), "%s", options);
        }
    }
}

/* ---- checkpoints, options ---- */

TEST(resume)
{
    char options[700], path[1200];
    llama m = byte_test;
    sl_model_def def = def_of(&m);
    outcome whole, part;
    sl_trainer *t;
    run_model("steps 6 schedule constant warmup 1", &def, &whole);
    snprintf(options, sizeof options, "steps 4 schedule constant warmup 1 out '%s'", test_path("resumed"));
    run_model(options, &def, &part);
    snprintf(options, sizeof options, "steps 6 schedule constant warmup 1 device-mem 60%% resume true out '%s'",
             test_path("resumed"));
    run_model(options, &def, &part);
    CHECK(part.steps == 2 && memcmp(part.loss, whole.loss + 4, 2 * sizeof *part.loss) == 0);
    CHECK_STR(part.hash, whole.hash);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000006/config.json", test_path("resumed"));
    char *text;
    size_t length;
    CHECK_OK(sl_file_read_all(path, 1 << 16, &text, &length));
    CHECK_CONTAINS(text, "\"identity\": \"llama of 2 layers\"");
    sl_free(text);
    /* Another graph, and a built-in model, are other runs. */
    snprintf(options, sizeof options, "steps 8 resume true out '%s'", test_path("resumed"));
    def.identity = "llama of 3 layers";
    sl_job *job = model_job(options, &def);
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "model llama of 2 layers, but this one has llama of 3 layers");
    CHECK_OK(sl_job_set_model(job, NULL));
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "--model is missing");
    CHECK_OK(sl_job_set(job, "model", "byte-test"));
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "model family custom");
    sl_job_destroy(job);
}

TEST(options_and_parameters)
{
    llama m = byte_test;
    sl_model_def def = def_of(&m);
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    static float q[2][64 * 64];
    sl_parameter_info info = SL_SIZED(sl_parameter_info);
    int frozen = 0;
    sl_job *job = model_job("freeze model.layers.*.qkv optimizer-for *norm*=sgd", &def);
    CHECK_OK(sl_trainer_create(job, &t));
    for (int64_t i = 0; i < sl_trainer_parameter_count(t); i++) {
        CHECK_OK(sl_trainer_parameter(t, i, &info));
        frozen += !info.trainable;
        if (strstr(info.name, "q_proj"))
            CHECK(!info.trainable && info.rows == 64 && info.columns == 64 && strstr(info.option_name, ".qkv"));
    }
    CHECK_I64(frozen, 6);
    CHECK_OK(
        sl_trainer_read_parameter(t, "model.layers.1.self_attn.q_proj.weight", SL_PARAMETER_F32, q[0], sizeof q[0]));
    CHECK_OK(sl_trainer_step(t, &result));
    CHECK_OK(
        sl_trainer_read_parameter(t, "model.layers.1.self_attn.q_proj.weight", SL_PARAMETER_F32, q[1], sizeof q[1]));
    CHECK(memcmp(q[0], q[1], sizeof q[0]) == 0);
    sl_trainer_destroy(t);
    sl_job_destroy(job);
}

TEST(prediction)
{
    llama m = byte_test;
    sl_model_def def = def_of(&m);
    sl_prediction *prediction;
    sl_prediction_figures f = SL_SIZED(sl_prediction_figures);
    sl_job *job = model_job("hw h200 device cuda precision bf16", &def);
    CHECK_OK(sl_prediction_create(job, &prediction));
    CHECK_OK(sl_prediction_get(prediction, &f));
    CHECK(f.feasible && f.parameters == 2 * 256 * 64 + 64 + 2 * (64 * (2 * 64 + 2 * 32 + 3 * 176) + 128));
    CHECK_CONTAINS(sl_prediction_json(prediction), "\"model\":\"mine\"");
    sl_prediction_destroy(prediction);
    sl_job_destroy(job);
}

static void check_refused(const char *options, const sl_model_def *def, sl_status want, const char *message)
{
    sl_trainer *t;
    sl_prediction *p;
    sl_job *job = model_job(options, def);
    CHECK_FAILS(sl_trainer_create(job, &t), want);
    CHECK_CONTAINS(sl_error_message(), message);
    CHECK_FAILS(sl_prediction_create(job, &p), want);
    sl_job_destroy(job);
}

TEST(misuse)
{
    llama m = byte_test;
    sl_model_def def = def_of(&m);
    check_refused("model byte-test", &def, SL_E_USAGE, "leave out --model");
    m.heads = 3;
    check_refused("", &def, SL_E_USAGE, "model mine: attention: 3 heads");
    m = byte_test;
    m.failure = SL_E_UNSUPPORTED;
    check_refused("", &def, SL_E_UNSUPPORTED, "no layers today");
    m = byte_test;
    def.max_seqlen = 16;
    check_refused("", &def, SL_E_USAGE, "--seqlen 32 is more than the 16 positions");
    check_refused(
        "freeze no-such*",
        &(sl_model_def){
            .struct_size = sizeof def, .name = "m", .identity = "1", .vocab = 256, .build = build, .user = &m},
        SL_E_USAGE, "no parameter to freeze");
    sl_job *job;
    CHECK_OK(sl_job_create(&job));
    def.struct_size = 3;
    CHECK_FAILS(sl_job_set_model(job, &def), SL_E_USAGE);
    sl_job_destroy(job);
}

/* No attention, no positions: a model that reads tokens alone. */
static sl_status build_pairs(void *user, sl_builder *b)
{
    (void) user;
    sl_build_block(b, "all", "");
    sl_var table = sl_build_parameter(
        b, SL_PARAMETER(.name = "table", .rows = 256, .columns = 32, .init = SL_INIT_NORMAL, .std = 0.1f));
    sl_var x = sl_build_embedding(b, "embed", table, sl_build_tokens(b));
    sl_build_loss(b, "loss", sl_build_dropout(b, "dropout", x, 0.1f), table, 1);
    return SL_OK;
}

TEST(tokens_alone)
{
    sl_model_def def = {
        .struct_size = sizeof def, .name = "pairs", .identity = "1", .vocab = 256, .build = build_pairs};
    outcome out, budget;
    run_model("steps 20 lr 1e-2 val-every 10 val-share 0.1", &def, &out);
    CHECK(out.loss[19] < out.loss[0] && isfinite(out.view.val_loss));
    run_model("steps 20 lr 1e-2 val-every 10 val-share 0.1 device-mem 90%", &def, &budget);
    CHECK(same_run(&out, &budget) && out.view.val_loss == budget.view.val_loss);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(the_bits_of_the_family);
    RUN(budgets_change_no_bit);
    RUN(resume);
    RUN(options_and_parameters);
    RUN(prediction);
    RUN(misuse);
    RUN(tokens_alone);
    return test_end();
}
