/* Which options a resumed run may change. Every option of `sluice train` is in the table below with what a change of it means:
 * another run (refused, with its name), other bits (a warning with its name), or the same bits (no message, and the weights of an
 * uninterrupted run). A new option that is not in the table fails the test. */
#include "core/log.h"
#include "run_job.h"
#include "train/identity.h"

typedef enum meaning { REFUSED, WARNED, TOLD, SAME } meaning;

typedef struct change {
    const char *option, *options; /* options: what the second part of the run adds */
    meaning meaning;
    const char *part; /* of the message */
} change;

static char heard[8192], other_text[512], weights[600];

static void hear(void *user, sl_log_level level, const char *message)
{
    size_t length = strlen(heard);
    (void) user;
    snprintf(heard + length, sizeof heard - length, "%s%s\n", level >= SL_LOG_WARN ? "warning: " : "", message);
}

/* Runs `steps` steps; the hash of the weights then, or "" and the error. */
static sl_status run_part(const char *options, int64_t steps, char hash[32])
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    outcome out;
    hash[0] = heard[0] = 0;
    sl_log_set(hear, NULL, SL_LOG_INFO);
    sl_status status = sl_trainer_create(job, &trainer);
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
    sl_job_destroy(job);
    SL_TRY(status);
    for (int64_t i = 0; i < steps && !result.done; i++)
        CHECK_OK(sl_trainer_step(trainer, &result));
    if (steps < 4)
        CHECK_OK(sl_trainer_checkpoint(trainer));
    read_report(trainer, &out);
    snprintf(hash, 32, "%s", out.hash);
    sl_trainer_destroy(trainer);
    return SL_OK;
}

static const char base[] = "steps 4 warmup 1 checkpoint-every -1 resume true out '%s' %s";

static void check_change(const char *begun, const char *with, const char *whole, const change *c)
{
    char options[2400], extra[1200], out[512], command[1200], hash[32];
    snprintf(out, sizeof out, "%s", test_path("resumed"));
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", out, begun, out);
    REQUIRE(system(command) == 0);
    snprintf(extra, sizeof extra, "%s %s", with, c->options);
    snprintf(options, sizeof options, base, out, extra);
    sl_status status = run_part(options, 4, hash);
    if (c->meaning == REFUSED) {
        CHECK_MSG(status == SL_E_USAGE, "%s: %s", c->options, sl_status_name(status));
        CHECK_CONTAINS(sl_error_message(), "belongs to a run ");
        CHECK_CONTAINS(sl_error_message(), c->part);
        return;
    }
    CHECK_MSG(status == SL_OK, "%s: %s", c->options, sl_error_message());
    if (c->meaning == SAME) {
        CHECK_MSG(!strstr(heard, "belongs") && !strstr(heard, "goes on"), "%s: %s", c->options, heard);
        CHECK_MSG(strcmp(hash, whole) == 0, "%s: the weights are other ones", c->options);
    } else {
        CHECK_CONTAINS(heard, c->part);
        CHECK_MSG((strstr(heard, "not to the same bits") != NULL) == (c->meaning == WARNED), "%s: %s", c->options,
                  heard);
    }
}

/* `with`: what both parts have. */
static void check_changes(const char *name, const char *with, const change *changes, int64_t count)
{
    char options[2400], begun[512], hash[32], whole[32];
    snprintf(begun, sizeof begun, "%s", test_path(name));
    snprintf(options, sizeof options, "steps 4 warmup 1 %s", with);
    CHECK_OK(run_part(options, 4, whole));
    snprintf(options, sizeof options, base, begun, with);
    CHECK_OK(run_part(options, 2, hash));
    for (int64_t i = 0; i < count; i++)
        check_change(begun, with, whole, &changes[i]);
}

static const change changes[] = {
    {"model", "model byte-nano", REFUSED, "model "},
    {"data", "data '%o'", REFUSED, "other data"},
    {"data-format", "data-format bytes", SAME, NULL},                   /* the same tokens of the same files */
    {"data-field", "data-field text", SAME, NULL},                      /* of records */
    {"tokenizer", "tokenizer elsewhere data-format bytes", SAME, NULL}, /* bytes need none */
    {"train-on", "train-on all", SAME, NULL},                           /* of chats */
    {"cache", "cache elsewhere", SAME, NULL},                           /* of records */
    {"val-data", "val-every 2 val-data '%o'", SAME, NULL},
    {"val-share", "val-every 2 val-share 0.1", REFUSED, "other data"},
    {"seqlen", "seqlen 64", REFUSED, "sequence length 32"},
    {"tokens-per-step", "tokens-per-step 128", WARNED, "other tokens per step (192, now 128)"},
    {"mask-documents", "mask-documents true", REFUSED, "--mask-documents"},
    {"document-token", "document-token 32", SAME, NULL}, /* without --mask-documents */
    {"init-from", "init-from '%w'", SAME, NULL},         /* the checkpoint has the weights */
    {"init-from", "init-from /nowhere", SAME, NULL},     /* not even looked at */
    {"from-scratch", "from-scratch true", SAME, NULL},
    {"steps", "steps 5", TOLD, "begun for 4 steps and goes on for 5"},
    {"precision", "precision bf16", REFUSED, "precision f32, but this one has bf16"},
    {"optimizer", "optimizer sgd", REFUSED, "optimizer adamw, but this one has sgd"},
    {"optimizer-for", "optimizer-for '*norm=sgd'", REFUSED, "optimizer rules none, but this one has *norm=sgd"},
    {"lr", "lr 2e-3 min-lr 3e-4", WARNED, "other learning rate (0.003"},
    {"schedule", "schedule constant", WARNED, "other schedule (cosine, now constant)"},
    {"min-lr", "min-lr 0", WARNED, "other least learning rate"},
    {"warmup", "warmup 3", WARNED, "other warm-up (1, now 3)"},
    {"decay-share", "decay-share 0.5", SAME, NULL}, /* of wsd */
    {"weight-decay", "weight-decay 0.2", WARNED, "other weight decay"},
    {"freeze", "freeze embedding", REFUSED, "frozen parameters none, but this one has embedding"},
    {"lora-rank", "lora-rank 4 from-scratch true", REFUSED, "adapted layers none, but this one has all-linear"},
    {"lora-alpha", "lora-rank 4 lora-alpha 3 from-scratch true", REFUSED, "adapted layers none"},
    {"lora-targets", "lora-rank 4 lora-targets q_proj from-scratch true", REFUSED, "this one has q_proj"},
    {"lora-dropout", "lora-rank 4 lora-dropout 0.1 from-scratch true", REFUSED, "adapted layers none"},
    {"lora-rslora", "lora-rank 4 lora-rslora true from-scratch true", REFUSED, "adapted layers none"},
    {"init-adapter", "from-scratch true init-adapter '" SL_SOURCE_DIR "/tests/golden/lora-qwen3/adapter'", REFUSED,
     "this one has down_proj,q_proj,v_proj"},
    {"beta1", "beta1 0.8", WARNED, "other beta1"},
    {"beta2", "beta2 0.9", WARNED, "other beta2"},
    {"eps", "eps 1e-6", WARNED, "other optimizer epsilon"},
    {"momentum", "momentum 0.5", SAME, NULL},   /* of SGD */
    {"muon-scale", "muon-scale 2", SAME, NULL}, /* of Muon */
    {"clip", "clip 0.5", WARNED, "other clipping (0, now 0.5)"},
    {"on-nan", "on-nan skip", WARNED, "other --on-nan (stop, now skip)"},
    {"nondeterministic", "nondeterministic true", WARNED, "other order of sums (fixed, now any)"},
    {"seed", "seed 2", REFUSED, "seed 1, but this one has 2"},
    {"val-every", "val-every 1 val-data '%o'", SAME, NULL},
    {"val-every", "val-every 1", REFUSED, "what --val-every and --val-share hold out"},
    {"val-steps", "val-steps 3", SAME, NULL},
    {"sample-every", "sample-every 1", SAME, NULL},
    {"sample-prompt", "sample-every 1 sample-prompt x", SAME, NULL},
    {"sample-tokens", "sample-every 1 sample-tokens 8", SAME, NULL},
    {"device-mem", "device-mem 3MiB", SAME, NULL},
    {"host-mem", "host-mem 64MiB", SAME, NULL},
    {"workspace-mem", "workspace-mem 1MiB", SAME, NULL},
    {"threads", "threads 1", SAME, NULL},
    {"chunk-tokens", "chunk-tokens 32", WARNED, "other chunk tokens (64, now 32)"},
    {"chunks-per-round", "chunks-per-round 1", SAME, NULL},
    {"hw", "hw this", SAME, NULL},
    {"costs", "costs measured", SAME, NULL},
    {"checkpoint-every", "checkpoint-every 1", SAME, NULL},
    {"keep", "keep 1 checkpoint-every 1", SAME, NULL},
    {"quiet", "quiet true", SAME, NULL},
    {"verbose", "verbose true", SAME, NULL},
    {"json", "json true", SAME, NULL},
};

/* Where a run comes from and goes to, and what it runs on: `kernels` stand for the device. */
static const char *const not_of_a_run[] = {"out", "resume", "config", "device", "dry-run"};

/* %o: another text; %w: the weights of another run. */
static void fill_in(char out[1200], const char *options)
{
    const char *at = strchr(options, '%');
    if (at)
        snprintf(out, 1200, "%.*s%s%s", (int) (at - options), options, at[1] == 'o' ? other_text : weights, at + 2);
    else
        snprintf(out, 1200, "%s", options);
}

TEST(every_option)
{
    static char filled[SL_COUNT(changes)][1200];
    static change all[SL_COUNT(changes)];
    outcome other;
    char options[1200], folder[512];
    snprintf(other_text, sizeof other_text, "%s", test_path("other.txt"));
    snprintf(folder, sizeof folder, "%s", test_path("other"));
    snprintf(options, sizeof options, "seed 9 out '%s'", folder);
    run_job(options, 100, &other);
    snprintf(weights, sizeof weights, "%s/checkpoints/step-00000005", folder);
    char *text;
    size_t length;
    CHECK_OK(sl_file_read_all(corpus_path(), 1 << 20, &text, &length));
    CHECK_OK(sl_file_write_atomic(other_text, text, length / 2));
    sl_free(text);
    for (int64_t i = 0; i < SL_COUNT(changes); i++) {
        fill_in(filled[i], changes[i].options);
        all[i] = changes[i];
        all[i].options = filled[i];
    }
    check_changes("begun", "", all, SL_COUNT(all));

    int64_t count;
    const sl_option *table = sl_job_table(&count);
    for (int64_t i = 0; i < count; i++) {
        bool found = false;
        for (int64_t k = 0; k < SL_COUNT(changes); k++)
            found |= strcmp(changes[k].option, table[i].name) == 0;
        for (int64_t k = 0; k < SL_COUNT(not_of_a_run); k++)
            found |= strcmp(not_of_a_run[k], table[i].name) == 0;
        CHECK_MSG(found, "--%s: may a resumed run change it?", table[i].name);
    }
}

/* Options that only count beside others. */
TEST(options_of_other_options)
{
    static const change sgd[] = {{"momentum", "momentum 0.5", WARNED, "other momentum (0.89"},
                                 {"beta1", "beta1 0.8", SAME, NULL},
                                 {"beta2", "beta2 0.8", SAME, NULL},
                                 {"eps", "eps 1e-3", SAME, NULL}};
    static const change muon[] = {{"muon-scale", "muon-scale 2", WARNED, "other learning-rate scale (1, now 2)"},
                                  {"momentum", "momentum 0.5", WARNED, "other momentum (0.949"},
                                  {"beta1", "beta1 0.8", WARNED, "other beta1 of adamw (0.89"},
                                  {"optimizer", "optimizer adamw", REFUSED, "optimizer muon, but this one has adamw"}};
    static const change rules[] = {
        {"muon-scale", "muon-scale 2", WARNED, "other learning-rate scale of muon (1, now 2)"},
        {"momentum", "momentum 0.5", WARNED, "other momentum of muon (0.949"},
        {"beta1", "beta1 0.8", WARNED, "other beta1 (0.89"},
        {"optimizer-for", "optimizer-for 'layers.0.qkv=muon'", REFUSED,
         "optimizer rules layers.*.qkv=muon, but this one has layers.0.qkv=muon"}};
    static const change wsd[] = {{"decay-share", "decay-share 0.5", WARNED, "other decay (1, now 2)"},
                                 {"min-lr", "min-lr 1e-5", WARNED, "other least learning rate"},
                                 {"schedule", "schedule cosine", WARNED, "other schedule (wsd, now cosine)"}};
    static const change constant[] = {{"min-lr", "min-lr 1e-5", SAME, NULL},
                                      {"decay-share", "decay-share 0.5", SAME, NULL},
                                      {"steps", "steps 4", SAME, NULL}};
    static const change masked[] = {{"document-token", "document-token 32", REFUSED, "other data"},
                                    {"mask-documents", "mask-documents false", REFUSED, "other data"}};
    static const change gated[] = {{"clip", "clip 0", WARNED, "other clipping (0.5, now 0)"},
                                   {"on-nan", "on-nan stop", WARNED, "other --on-nan (skip, now stop)"}};
    check_changes("sgd", "optimizer sgd", sgd, SL_COUNT(sgd));
    check_changes("muon", "optimizer muon", muon, SL_COUNT(muon));
    check_changes("rules", "optimizer-for 'layers.*.qkv=muon'", rules, SL_COUNT(rules));
    check_changes("wsd", "schedule wsd", wsd, SL_COUNT(wsd));
    check_changes("constant", "schedule constant", constant, SL_COUNT(constant));
    check_changes("masked", "mask-documents true", masked, SL_COUNT(masked));
    check_changes("gated", "clip 0.5 on-nan skip", gated, SL_COUNT(gated));
}

TEST(options_of_adapters)
{
    static const change lora[] = {
        {"lora-rank", "lora-rank 3 lora-alpha 6", REFUSED, "adapter rank 4, but this one has 3"},
        {"lora-alpha", "lora-alpha 6", REFUSED, "adapter factor 2, but this one has 1.5"},
        {"lora-rslora", "lora-rslora true", REFUSED, "adapter factor 2, but this one has 4"},
        {"lora-targets", "lora-targets q_proj,o_proj", REFUSED, "this one has q_proj,o_proj"},
        {"lora-dropout", "lora-dropout 0.1", WARNED, "other adapter dropout (0, now 0.1"},
        {"lora-alpha", "lora-alpha 8 lora-dropout 0 lora-rslora false", SAME, NULL},
        {"threads", "threads 1 device-mem 3MiB", SAME, NULL},
        {"seed", "seed 2", REFUSED, "but this one has"},
        {"lora-rank", "lora-rank 0", REFUSED, "adapted layers all-linear, but this one has none"}};
    check_changes("lora", "lora-rank 4 from-scratch true", lora, SL_COUNT(lora));
}

/* ---- facts of the model, which no option sets one by one ---- */

static sl_status compare(const sl_identity *now, const sl_identity *then)
{
    sl_json_writer w = {0};
    sl_region *region;
    const sl_json *root;
    sl_json_begin_object(&w, NULL);
    sl_identity_put(then, &w);
    sl_json_end_object(&w);
    CHECK_OK(sl_text_status(&w.text));
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "then", w.text.data, w.text.length, &root));
    sl_status status = sl_identity_compare(now, "then", root, 1);
    sl_region_destroy(region);
    sl_text_free(&w.text);
    return status;
}

TEST(every_fact_of_the_model)
{
    sl_setup then, now;
    sl_job *job = make_job(""), *gpt2;
    CHECK_OK(sl_setup_resolve(job, &then));
    sl_model *m = &now.model;
    const struct {
        const char *name;
        int64_t *count;
        float *number;
        int32_t *choice;
        uint8_t *byte;
        bool *flag;
    } facts[] = {
        {.name = "model layers", .count = &m->layers},
        {.name = "model dimension", .count = &m->dim},
        {.name = "model heads", .count = &m->heads},
        {.name = "model K/V heads", .count = &m->kv_heads},
        {.name = "model head dimension", .count = &m->head_dim},
        {.name = "model FFN dimension", .count = &m->ffn},
        {.name = "model vocabulary", .count = &m->vocab},
        {.name = "model positions", .count = &m->max_seqlen},
        {.name = "tied embeddings", .flag = &m->tied},
        {.name = "norm epsilon", .number = &m->norm_eps},
        {.name = "RoPE style", .choice = &m->rope_style},
        {.name = "RoPE theta", .number = &m->rope.theta},
        {.name = "RoPE scaling", .number = &m->rope.factor},
        {.name = "RoPE scaling", .number = &m->rope.low_freq},
        {.name = "RoPE scaling", .number = &m->rope.high_freq},
        {.name = "RoPE scaling", .choice = &m->rope.original_context},
        {.name = "RoPE type", .choice = &m->rope.scaling},
        {.name = "RoPE type", .choice = &m->rope.rotary},
        {.name = "RoPE type", .number = &m->local_rope.theta},
        {.name = "attention of layers", .byte = &m->layer_flags[1]},
        {.name = "score scale and caps", .number = &m->query_scale},
        {.name = "score scale and caps", .number = &m->attention_cap},
        {.name = "score scale and caps", .number = &m->logit_cap},
        {.name = "biases", .flag = &m->qkv_bias},
        {.name = "biases", .flag = &m->o_bias},
        {.name = "biases", .flag = &m->mlp_bias},
        {.name = "GELU", .flag = &m->gelu_tanh},
        {.name = "dropout", .number = &m->dropout},
    };
    sl_identity before = {.setup = &then, .data = "1", .numerics = "kernels"};
    sl_identity after = {.setup = &now, .data = "1", .numerics = "kernels"};
    for (int64_t i = 0; i < SL_COUNT(facts); i++) {
        now = then;
        CHECK_OK(compare(&after, &before));
        if (facts[i].count)
            ++*facts[i].count;
        else if (facts[i].number)
            *facts[i].number += 0.5f;
        else if (facts[i].choice)
            ++*facts[i].choice;
        else if (facts[i].byte)
            ++*facts[i].byte;
        else
            *facts[i].flag = !*facts[i].flag;
        CHECK_FAILS(compare(&after, &before), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), facts[i].name);
    }
    now = then;
    gpt2 = make_job("model gpt2 seqlen 64 tokens-per-step 64");
    CHECK_OK(sl_setup_resolve(gpt2, &now));
    now.model.layers = then.model.layers; /* the family comes first anyway */
    CHECK_FAILS(compare(&after, &before), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "model family");
    now = then;
    after.data = "2";
    CHECK_FAILS(compare(&after, &before), SL_E_USAGE);
    after.data = "1";
    after.numerics = "other kernels";
    heard[0] = 0;
    sl_log_set(hear, NULL, SL_LOG_INFO);
    CHECK_OK(compare(&after, &before));
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
    CHECK_CONTAINS(heard, "warning: then was written with other kernels (kernels, now other kernels)");
    sl_job_destroy(gpt2);
    sl_job_destroy(job);
}

/* A checkpoint that does not say which parameters are frozen or have another optimizer has none of them. */
TEST(patterns_that_an_earlier_version_did_not_know)
{
    sl_setup setup;
    sl_region *region;
    const sl_json *root;
    sl_json_writer w = {0};
    sl_job *job = make_job("");
    CHECK_OK(sl_setup_resolve(job, &setup));
    const sl_identity identity = {.setup = &setup, .data = "1", .numerics = "kernels"};
    sl_json_begin_object(&w, NULL);
    sl_identity_put(&identity, &w);
    sl_json_end_object(&w);
    CHECK_OK(sl_text_status(&w.text));
    for (char *at; (at = strstr(w.text.data, "frozen parameters")) || (at = strstr(w.text.data, "optimizer rules"));)
        *at = '-';
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "then", w.text.data, w.text.length, &root));
    CHECK_OK(sl_identity_compare(&identity, "then", root, 1));
    setup.program.frozen = "embedding";
    CHECK_FAILS(sl_identity_compare(&identity, "then", root, 1), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "frozen parameters none, but this one has embedding");
    setup.program.frozen = NULL;
    setup.program.optimizer_rules = "*norm=sgd";
    CHECK_FAILS(sl_identity_compare(&identity, "then", root, 1), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "optimizer rules none, but this one has *norm=sgd");
    sl_region_destroy(region);
    sl_text_free(&w.text);
    sl_job_destroy(job);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    setenv("XDG_CACHE_HOME", test_dir(), 1); /* measured costs */
    RUN(every_option);
    RUN(options_of_other_options);
    RUN(options_of_adapters);
    RUN(every_fact_of_the_model);
    RUN(patterns_that_an_earlier_version_did_not_know);
    return test_end();
}
