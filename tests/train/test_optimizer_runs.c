/* Training with each optimizer and with mixtures: the same bits under every budget and number of threads and after a resume, the states
 * that a checkpoint has, what is refused, and a loss that falls. */
#include "model/safetensors.h"
#include "run_job.h"

static const char *const precisions[] = {"f32", "bf16", "bf16-master"};

typedef struct kind {
    const char *name, *options;
} kind;
static const kind kinds[] = {
    {"lamb", "optimizer lamb clip 1 weight-decay 0.05"},
    {"muon", "optimizer muon"},
    {"adamw8bit", "optimizer adamw8bit clip 1 optimizer-for '*norm*=adamw'"},
    {"mixture", "optimizer muon on-nan skip optimizer-for '*norm*=sgd,layers.0.*=lamb'"},
};

/* Options of one run; `more` may be "". */
static const char *with(const kind *k, const char *precision, const char *more)
{
    static char text[1024];
    snprintf(text, sizeof text, "%s precision %s %s", k->options, precision, more);
    return text;
}

/* The run without budgets, and budgets from its peak down to the least that is feasible. */
static void check_budgets(const kind *k, const char *precision, const outcome *whole)
{
    sl_prediction_view view;
    outcome run;
    char more[128];
    prediction_job(with(k, precision, "device-mem 1%"), &view);
    const size_t least = view.min_bytes[SL_TIER_DEVICE], peak = view.unlimited_bytes[SL_TIER_DEVICE];
    REQUIRE(least > 0 && least < peak);
    for (int share = 0; share < 4; share++) {
        const size_t budget = least + (peak - least) / 4 * (size_t) share;
        snprintf(more, sizeof more, "device-mem %zu", budget);
        run_job(with(k, precision, more), 100, &run);
        CHECK_MSG(same_run(whole, &run), "%s, %s: other bits in %zu bytes", k->name, precision, budget);
        CHECK(run.view.measured.peak_bytes[SL_TIER_DEVICE] <= budget);
    }
}

static void check_threads(const kind *k, const char *precision, const outcome *whole)
{
    static const char *const others[] = {"threads 1", "threads 2", "threads 3", "threads 3 chunks-per-round 1"};
    outcome run;
    for (int64_t i = 0; i < SL_COUNT(others); i++) {
        run_job(with(k, precision, others[i]), 100, &run);
        CHECK_MSG(same_run(whole, &run), "%s, %s: other bits with %s", k->name, precision, others[i]);
    }
}

/* Stops after two steps and goes on with other threads or another budget. */
static void check_resume(const kind *k, const char *precision, const outcome *whole)
{
    static const char *const budgets[][2] = {{"threads 3", "threads 1"}, {"threads 2", "device-mem 50%"}};
    outcome begun, rest;
    char more[600];
    for (int i = 0; i < 2; i++) {
        snprintf(more, sizeof more, "%s checkpoint-every 2 out '%s-%s-%s-%d'", budgets[i][0], test_path("run"), k->name,
                 precision, i);
        run_job(with(k, precision, more), 2, &begun);
        CHECK(memcmp(begun.loss, whole->loss, 2 * sizeof *whole->loss) == 0);
        snprintf(more, sizeof more, "%s resume true out '%s-%s-%s-%d'", budgets[i][1], test_path("run"), k->name,
                 precision, i);
        run_job(with(k, precision, more), 100, &rest);
        CHECK_I64(rest.steps, 3);
        CHECK_MSG(strcmp(rest.hash, whole->hash) == 0 &&
                      memcmp(rest.loss, whole->loss + 2, sizeof rest.loss[0] * 3) == 0,
                  "%s, %s, %s: other bits after a resume", k->name, precision, budgets[i][0]);
    }
}

TEST(bits)
{
    char hashes[SL_COUNT(kinds)][32];
    for (int64_t p = 0; p < SL_COUNT(precisions); p++)
        for (int64_t i = 0; i < SL_COUNT(kinds); i++) {
            outcome whole;
            if (i == 3 && p != 1)
                continue;
            run_job(with(&kinds[i], precisions[p], ""), 100, &whole);
            CHECK_I64(whole.steps, 5);
            check_budgets(&kinds[i], precisions[p], &whole);
            check_threads(&kinds[i], precisions[p], &whole);
            check_resume(&kinds[i], precisions[p], &whole);
            snprintf(hashes[i], sizeof hashes[i], "%s", whole.hash);
            for (int64_t j = 0; j < i; j++)
                CHECK(strcmp(hashes[i], hashes[j]) != 0);
        }
}

/* Has the newest checkpoint of `bits` a tensor of this name and dtype? */
static bool has_tensor(const char *run, const char *name, sl_file_dtype dtype)
{
    char path[800];
    sl_tensors *tensors;
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005/optimizer.safetensors", test_path(run));
    CHECK_OK(sl_tensors_open(path, &tensors));
    const sl_tensor *tensor = sl_tensors_find(tensors, name);
    const bool found = tensor && tensor->dtype == dtype;
    sl_tensors_close(tensors);
    return found;
}

static int moments_of(const char *run, const char *name, sl_file_dtype dtype)
{
    char text[200];
    int n = 0;
    for (int k = 1; k <= 2; k++) {
        snprintf(text, sizeof text, "moment%d.%s", k, name);
        n += has_tensor(run, text, dtype) ? k : 0;
    }
    return n;
}

enum { FIRST = 1, BOTH = 3 };

TEST(states_in_a_checkpoint)
{
    static const char layer0[] = "model.layers.0.self_attn.q_proj.weight", embedding[] = "model.embed_tokens.weight",
                      layer1[] = "model.layers.1.self_attn.q_proj.weight", norm[] = "model.norm.weight";
    char more[600];
    outcome run;
    static const char *const names[] = {"states-lamb", "states-muon", "states-codes", "states-mixture"};
    for (int64_t i = 0; i < SL_COUNT(kinds); i++) {
        snprintf(more, sizeof more, "out '%s'", test_path(names[i]));
        run_job(with(&kinds[i], i == 1 ? "bf16" : "f32", more), 100, &run);
    }
    CHECK_I64(moments_of("states-lamb", layer0, SL_FILE_F32), BOTH);
    CHECK_I64(moments_of("states-lamb", norm, SL_FILE_F32), BOTH);
    CHECK_I64(moments_of("states-muon", layer0, SL_FILE_BF16), FIRST);
    CHECK_I64(moments_of("states-muon", layer1, SL_FILE_BF16), FIRST);
    CHECK_I64(moments_of("states-muon", embedding, SL_FILE_BF16), BOTH);
    CHECK_I64(moments_of("states-muon", norm, SL_FILE_BF16), BOTH);
    CHECK_I64(moments_of("states-codes", norm, SL_FILE_F32), BOTH);
    CHECK_I64(moments_of("states-codes", embedding, SL_FILE_F32), 0);
    CHECK(has_tensor("states-codes", "moment1.codes.embedding", SL_FILE_U8) &&
          has_tensor("states-codes", "moment2.codes.embedding", SL_FILE_U8));
    CHECK_I64(moments_of("states-mixture", layer0, SL_FILE_F32), BOTH);
    CHECK_I64(moments_of("states-mixture", layer1, SL_FILE_F32), FIRST);
    CHECK_I64(moments_of("states-mixture", norm, SL_FILE_F32), FIRST);
    CHECK_I64(moments_of("states-mixture", embedding, SL_FILE_F32), BOTH);
}

static void check_refused(const char *options, const char *part)
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), part);
    sl_job_destroy(job);
}

TEST(refused)
{
    char options[700];
    outcome run;
    snprintf(options, sizeof options, "optimizer muon out '%s'", test_path("begun"));
    run_job(options, 100, &run);
    static const struct {
        const char *options, *part;
    } others[] = {{"optimizer lamb", "belongs to a run with optimizer muon, but this one has lamb"},
                  {"optimizer adamw", "belongs to a run with optimizer muon, but this one has adamw"},
                  {"optimizer muon optimizer-for head=sgd", "optimizer rules none, but this one has head=sgd"}};
    for (int64_t i = 0; i < SL_COUNT(others); i++) {
        snprintf(options, sizeof options, "%s steps 6 resume true out '%s'", others[i].options, test_path("begun"));
        check_refused(options, others[i].part);
        CHECK_CONTAINS(sl_error_message(), "use the same to go on, or another --out to begin anew");
    }
    check_refused("optimizer-for 'layers.*=muon'", "\"layers.*\" gives layers.0.attention_norm to muon");
    check_refused("optimizer-for 'qkv=muon'", "no parameter to give to muon is called \"qkv\"");
    check_refused("optimizer-for 'head=adam'", "is no rule for optimizers");
    check_refused("optimizer muon muon-scale 0", "muon-scale");
    check_refused("optimizer lamb beta2 1", "beta2");
}

/* What an option does not belong to ignores it, and what it belongs to does not. */
TEST(options_reach_their_optimizer)
{
    outcome plain, other;
    run_job("optimizer muon", 100, &plain);
    static const char *const effective[] = {"muon-scale 2", "momentum 0.9", "beta1 0.8", "weight-decay 0"};
    for (int64_t i = 0; i < SL_COUNT(effective); i++) {
        char options[128];
        snprintf(options, sizeof options, "optimizer muon %s", effective[i]);
        run_job(options, 100, &other);
        CHECK_MSG(!same_run(&plain, &other), "%s has no effect", effective[i]);
    }
    run_job("optimizer muon beta1 0.9 beta2 0.95 eps 1e-8 momentum 0.95", 100, &other); /* the defaults */
    CHECK(same_run(&plain, &other));
    run_job("optimizer lamb", 100, &plain);
    run_job("optimizer lamb beta2 0.999 eps 1e-6 muon-scale 7 momentum 0.1", 100, &other);
    CHECK(same_run(&plain, &other));
    run_job("optimizer lamb beta2 0.95", 100, &other);
    CHECK(!same_run(&plain, &other));
}

/* Frequencies of bytes alone give 2.7 nats, whole words at random 0.4. */
TEST(the_loss_falls)
{
    static const char *const jobs[] = {"optimizer lamb clip 1 lr 2e-2", "optimizer muon lr 3e-3",
                                       "optimizer muon lr 3e-3 precision bf16"};
    for (int64_t i = 0; i < SL_COUNT(jobs); i++) {
        char options[256];
        outcome run;
        snprintf(options, sizeof options, "model byte-nano tokens-per-step 512 chunk-tokens 256 steps 40 %s", jobs[i]);
        run_job(options, 100, &run);
        CHECK_MSG(run.loss[0] > 5 && run.loss[run.steps - 1] < 2, "%s: %.3f to %.3f", jobs[i], run.loss[0],
                  run.loss[run.steps - 1]);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(bits);
    RUN(states_in_a_checkpoint);
    RUN(refused);
    RUN(options_reach_their_optimizer);
    RUN(the_loss_falls);
    return test_end();
}
