/* From options to a definite job: defaults that depend on one another, ranges, precedence of command line over file. */
#include "core/file.h"
#include "test.h"
#include "train/job.h"

static void resolve(const char *const *options, sl_setup *setup, sl_job **job)
{
    CHECK_OK(sl_job_create(job));
    CHECK_OK(sl_job_set(*job, "model", "byte-test"));
    for (; options && *options; options += 2)
        CHECK_OK(sl_job_set(*job, options[0], options[1]));
    CHECK_OK(sl_setup_resolve(*job, setup));
}

TEST(defaults)
{
    sl_setup s;
    sl_job *job;
    resolve((const char *const[]){"device", "cpu", NULL}, &s, &job);
    CHECK_I64(s.program.chunking.seqlen, 256);
    CHECK_I64(s.program.chunking.sequences, 8);
    CHECK_I64(s.program.chunking.chunk_tokens, 1024);
    CHECK(s.program.precision == SL_PRECISION_F32);
    CHECK(!s.program.gated && s.program.norm);
    CHECK(s.budget[SL_TIER_DEVICE] == SIZE_MAX && s.budget[SL_TIER_HOST] == SIZE_MAX);
    CHECK_I64(s.schedule.warmup, 5);
    CHECK_NEAR(s.schedule.least, 3e-5, 1e-12);
    CHECK_I64(s.program.max_segments, 4);
    CHECK(s.measured && !s.hardware && !s.out && !s.resume);
    sl_job_destroy(job);
}

TEST(values)
{
    sl_setup s;
    sl_job *job;
    resolve(
        (const char *const[]){
            "seqlen",      "4096", "tokens-per-step", "8k",   "device-mem", "24GiB", "clip",   "0",   "schedule", "wsd",
            "decay-share", "0.25", "steps",           "400",  "lr",         "1e-2",  "min-lr", "0",   "warmup",   "7",
            "precision",   "bf16", "mask-documents",  "true", "optimizer",  "sgd",   "device", "cpu", NULL},
        &s, &job);
    CHECK_I64(s.program.chunking.sequences, 2);
    CHECK_I64(s.program.chunking.chunk_tokens, 1024); /* four slices of a sequence */
    CHECK(s.budget[SL_TIER_DEVICE] == (size_t) 24 << 30);
    CHECK(!s.program.gated && s.program.optimizer == SL_OPTIMIZER_SGD && s.program.precision == SL_PRECISION_BF16);
    CHECK_I64(s.schedule.decay, 100);
    CHECK_I64(s.schedule.warmup, 7);
    CHECK_NEAR(s.schedule.least, 0, 0);
    CHECK_I64(s.max_documents, s.program.chunking.seqlen); /* a token each */
    sl_job_destroy(job);
    resolve((const char *const[]){"hw", "h200", "seqlen", "8192", "tokens-per-step", "524288", NULL}, &s, &job);
    CHECK(!s.program.nondeterministic); /* bits before speed, unless asked */
    CHECK_STR(s.device, "cuda");        /* planned for, whether or not it is here */
    CHECK(!s.measured && s.program.precision == SL_PRECISION_BF16_MASTER);
    CHECK_I64(s.program.chunking.chunk_tokens, 8192);
    CHECK(s.program.workspace_limit == 0); /* no budget, no limit */
    sl_job_destroy(job);
    resolve((const char *const[]){"nondeterministic", "true", NULL}, &s, &job);
    CHECK(s.program.nondeterministic);
    sl_job_destroy(job);
    resolve((const char *const[]){"hw", "h200", "seqlen", "1048576", "device-mem", "32GiB", NULL}, &s, &job);
    CHECK_I64(s.program.chunking.chunk_tokens, 2048); /* pairs of query and key are bounded */
    CHECK(s.program.workspace_limit == ((size_t) 32 << 30) / 20);
    sl_job_destroy(job);
}

static sl_status resolve_one(const char *key, const char *value, sl_setup *setup, const char *with)
{
    sl_job *job;
    CHECK_OK(sl_job_create(&job));
    CHECK_OK(sl_job_set(job, "model", "byte-test"));
    CHECK_OK(sl_job_set(job, "device", "cpu"));
    if (with)
        CHECK_OK(sl_job_set(job, with, "1"));
    CHECK_OK(sl_job_set(job, key, value));
    sl_status status = sl_setup_resolve(job, setup);
    sl_job_destroy(job);
    return status;
}

/* The least and the largest value that is taken, and the next beyond, which is refused by name. */
TEST(ranges)
{
    static const struct {
        const char *option, *least, *below, *most, *above;
    } ranges[] = {
        {"seqlen", "1", "0", NULL, NULL},
        {"steps", "1", "0", "4294967294", "4294967295"},
        {"val-every", "0", "-1", NULL, NULL},
        {"val-steps", "1", "0", NULL, NULL},
        {"sample-every", "0", "-1", NULL, NULL},
        {"keep", "1", "0", NULL, NULL},
        {"seed", "0", "-1", NULL, NULL},
        {"document-token", "-1", "-2", NULL, NULL},
        {"chunks-per-round", "0", "-1", NULL, NULL},
        {"checkpoint-every", "-1", "-2", NULL, NULL},
        {"warmup", "0", "-1", NULL, NULL},
        {"chunk-tokens", "1", "0", NULL, NULL},
        {"lr", "0", "-0.1", "1e30", "2e30"},
        {"min-lr", "0", "-0.1", "3e-4", "4e-4"}, /* at most --lr */
        {"weight-decay", "0", "-0.1", "1e6", "2e6"},
        {"beta1", "0", "-0.1", "0.9999999", "1"},
        {"beta2", "0", "-0.1", "0.9999999", "1"},
        {"eps", "0", "-0.1", "1", "1.1"},
        {"momentum", "0", "-0.1", "0.9999999", "1"},
        {"clip", "0", "-0.1", "1e30", "2e30"},
        {"val-share", "0", "-0.1", "0.9", "0.91"},
        {"decay-share", "0", "-0.1", "1", "1.1"},
        {"tokens-per-step", "256", "0", "2147483392", "2147483648"},
    };
    sl_setup setup;
    for (int64_t i = 0; i < SL_COUNT(ranges); i++) {
        char name[64];
        snprintf(name, sizeof name, "--%s", ranges[i].option);
        CHECK_OK(resolve_one(ranges[i].option, ranges[i].least, &setup, NULL));
        CHECK_FAILS(resolve_one(ranges[i].option, ranges[i].below, &setup, NULL), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), name);
        if (!ranges[i].most)
            continue;
        CHECK_OK(resolve_one(ranges[i].option, ranges[i].most, &setup, NULL));
        CHECK_FAILS(resolve_one(ranges[i].option, ranges[i].above, &setup, NULL), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), name);
    }
    CHECK_FAILS(resolve_one("tokens-per-step", "300", &setup, NULL), SL_E_USAGE); /* no multiple of --seqlen */
}

/* Defaults that follow from other options, on both sides of where they change. */
TEST(defaults_that_follow)
{
    static const struct {
        const char *key, *value;
        int64_t sequences, chunk;
    } chunks[] = {{"seqlen", "256", 8, 1024},
                  {"seqlen", "1024", 2, 1024},
                  {"seqlen", "2048", 1, 1024},
                  {"seqlen", "100", 20, 1000},
                  {"tokens-per-step", "512", 2, 512}};
    static const struct {
        const char *steps;
        int64_t warmup, decay;
    } lengths[] = {{"19", 0, 4}, {"20", 1, 4}, {"39999", 1999, 8000}, {"40020", 2000, 8004}, {"1", 0, 1}, {"13", 0, 3}};
    sl_setup s;
    for (int64_t i = 0; i < SL_COUNT(chunks); i++) {
        CHECK_OK(resolve_one(chunks[i].key, chunks[i].value, &s, NULL));
        CHECK_I64(s.program.chunking.sequences, chunks[i].sequences);
        CHECK_I64(s.program.chunking.chunk_tokens, chunks[i].chunk);
    }
    for (int64_t i = 0; i < SL_COUNT(lengths); i++) {
        CHECK_OK(resolve_one("steps", lengths[i].steps, &s, NULL));
        CHECK_I64(s.schedule.warmup, lengths[i].warmup);
        CHECK_I64(s.schedule.decay, lengths[i].decay);
        CHECK_I64(s.schedule.steps, s.steps);
    }
    CHECK_OK(resolve_one("chunk-tokens", "1024000", &s, NULL)); /* no more than a step has */
    CHECK_I64(s.program.chunking.chunk_tokens, 2048);
    CHECK_OK(resolve_one("on-nan", "skip", &s, NULL));
    CHECK(s.program.gated && s.on_nan == SL_ON_NAN_SKIP);
    CHECK_OK(resolve_one("clip", "2.5", &s, NULL));
    CHECK(s.program.gated && s.clip == 2.5 && s.on_nan == SL_ON_NAN_STOP);
    CHECK_OK(resolve_one("val-share", "0.5", &s, NULL)); /* nobody validates */
    CHECK(s.val_share == 0);
    CHECK_OK(resolve_one("val-share", "0.5", &s, "val-every"));
    CHECK(s.val_share == 0.5);
    CHECK_OK(resolve_one("val-data", "/x", &s, "val-every"));
    CHECK(s.val_share == 0 && s.val_every == 1);
    CHECK_STR(s.val_data ? "given" : "", "given");
    CHECK_OK(resolve_one("device-mem", "1GiB", &s, NULL));
    CHECK(s.limited[SL_TIER_DEVICE] && !s.limited[SL_TIER_HOST] && s.budget[SL_TIER_HOST] == SIZE_MAX);
    CHECK_OK(resolve_one("host-mem", "1GiB", &s, NULL));
    CHECK(!s.limited[SL_TIER_DEVICE] && s.limited[SL_TIER_HOST] && s.budget[SL_TIER_HOST] == (size_t) 1 << 30);
    CHECK_OK(resolve_one("workspace-mem", "0", &s, NULL)); /* as little as can be, not: as much as it likes */
    CHECK(s.program.workspace_limit == 1);
    CHECK_OK(resolve_one("costs", "measured", &s, NULL));
    CHECK(s.measured && !s.hardware);
    CHECK_OK(resolve_one("costs", "roofline", &s, NULL));
    CHECK(!s.measured);
    CHECK_OK(resolve_one("hw", "this", &s, NULL)); /* a profile, of the device that is here */
    CHECK(!s.measured);
    CHECK_STR(s.device, "cpu");
    CHECK_OK(resolve_one("hw", "h100", &s, NULL)); /* --device cpu stays */
    CHECK(!s.measured);
    CHECK_STR(s.device, "cpu");
    CHECK_OK(resolve_one("device", "sim", &s, NULL)); /* has no times to measure */
    CHECK(!s.measured);
    CHECK_OK(resolve_one("beta1", "0.5", &s, NULL));
    CHECK(s.program.optimizer_options[SL_OPTIMIZER_ADAMW][0] == 0.5f &&
          s.program.optimizer_options[SL_OPTIMIZER_ADAMW][1] == 0.95f);
    CHECK(s.program.optimizer_options[SL_OPTIMIZER_ADAMW][2] == 1e-8f);
    CHECK(s.program.optimizer_options[SL_OPTIMIZER_LAMB][0] == 0.5f); /* all that have the option, used or not */
    CHECK(s.program.optimizer_options[SL_OPTIMIZER_LAMB][1] == 0.999f);
    sl_job *alive; /* the rules point into it */
    resolve((const char *const[]){"device", "cpu", "optimizer-for", "*norm=sgd", NULL}, &s, &alive);
    CHECK_STR(s.program.optimizer_rules, "*norm=sgd");
    sl_job_destroy(alive);
    CHECK_OK(resolve_one("seed", "12345678901234", &s, NULL));
    CHECK(s.seed == 12345678901234u);
    CHECK_OK(resolve_one("chunks-per-round", "3", &s, NULL));
    CHECK_I64(s.program.chunks_per_round, 3);
}

static const sl_option *option_called(const char *name)
{
    int64_t count;
    const sl_option *table = sl_job_table(&count), *found = NULL;
    for (int64_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0) {
            CHECK_MSG(!found, "--%s is in the table twice", name);
            found = &table[i];
        }
    REQUIRE(found);
    return found;
}

/* Every optimizer and its options are in the table, with one default where all have the same and else with each. */
TEST(options_of_optimizers)
{
    const sl_option *choice = option_called("optimizer");
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        char text[64];
        CHECK_CONTAINS(choice->value, def->name);
        CHECK_CONTAINS(choice->help, def->help);
        for (int k = 0; k < def->n_options; k++) {
            const sl_option *option = option_called(def->options[k].name);
            CHECK_CONTAINS(option->help, def->options[k].help);
            snprintf(text, sizeof text, "%s (%s)", def->options[k].value, def->name);
            if (option->otherwise)
                CHECK_STR(option->otherwise, def->options[k].value);
            else
                CHECK_CONTAINS(option->help, text);
        }
    }
    CHECK_CONTAINS(option_called("momentum")->help, "Momentum factor. Default: 0.9 (sgd), 0.95 (muon)");
    CHECK(!option_called("momentum")->otherwise);
    CHECK_STR(option_called("beta1")->otherwise, "0.9");
}

TEST(command_line_over_file)
{
    static const char text[] = "# a comment\nmodel = byte-nano\nsteps = 77\nlr = 0.5\n";
    char config[512],
        *arguments[] = {(char[]){"--steps"}, (char[]){"9"}, (char[]){"--config"}, config, (char[]){"--device=cpu"}};
    sl_job *job;
    sl_setup s;
    CHECK_OK(sl_file_write_atomic(test_path("job.conf"), text, sizeof text - 1));
    snprintf(config, sizeof config, "%s", test_path("job.conf"));
    CHECK_OK(sl_job_create(&job));
    CHECK_OK(sl_job_parse(job, 5, arguments));
    CHECK_OK(sl_setup_resolve(job, &s));
    CHECK_I64(s.steps, 9);
    CHECK_NEAR(s.schedule.peak, 0.5, 0);
    CHECK_STR(s.model.name, "byte-nano");
    const char *value;
    CHECK_OK(sl_job_get(job, "config", &value));
    CHECK_STR(value, config);
    sl_job_destroy(job);
}

TEST(every_option_teaches)
{
    int64_t count;
    const sl_option *table = sl_job_table(&count);
    for (int64_t i = 0; i < count; i++) {
        CHECK_MSG(table[i].help && strlen(table[i].help) >= 20, "--%s says too little", table[i].name);
        CHECK(table[i].group && (table[i].value || table[i].kind == SL_OPT_FLAG));
        for (int64_t j = 0; j < i; j++)
            CHECK_MSG(strcmp(table[i].name, table[j].name) != 0, "--%s is there twice", table[i].name);
    }
}

TEST(positions_that_a_model_is_made_for)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 4, \"vocab_size\": 256, \"max_position_embeddings\": 512}";
    sl_setup s;
    sl_job *job;
    CHECK_OK(sl_file_write_atomic(test_path("config.json"), config, sizeof config - 1));
    const char *path = test_path("config.json");
    test_expect_warnings(1, "--seqlen 513 is above the 512 positions");
    resolve((const char *const[]){"device", "cpu", "model", path, "seqlen", "512", NULL}, &s, &job);
    sl_job_destroy(job);
    resolve((const char *const[]){"device", "cpu", "model", path, "seqlen", "513", NULL}, &s, &job);
    sl_job_destroy(job);
    resolve((const char *const[]){"device", "cpu", "model", "byte-test", "seqlen", "100000", NULL}, &s, &job);
    sl_job_destroy(job); /* a preset for any length */
}

/* The folder of a model's weights is kept as it was given, up to the 1023 bytes there is space for. */
TEST(folders_of_models)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 4, \"vocab_size\": 256}";
    sl_setup s;
    sl_job *job;
    char path[1100];
    CHECK_OK(sl_dir_create(test_path("model")));
    CHECK_OK(sl_file_write_atomic(test_path("model/config.json"), config, sizeof config - 1));
    CHECK_OK(sl_file_write_atomic(test_path("model/other.json"), config, sizeof config - 1));
    resolve((const char *const[]){"device", "cpu", "model", test_path("model"), NULL}, &s, &job);
    CHECK_STR(s.model_folder, test_path("model"));
    sl_job_destroy(job);
    resolve((const char *const[]){"device", "cpu", "model", test_path("model/config.json"), NULL}, &s, &job);
    CHECK_STR(s.model_folder, test_path("model"));
    sl_job_destroy(job);
    resolve((const char *const[]){"device", "cpu", "model", test_path("model/other.json"), NULL}, &s, &job);
    CHECK_STR(s.model_folder, "");
    sl_job_destroy(job);
    for (size_t length = 1023; length <= 1024; length++) {
        size_t begin = (size_t) snprintf(path, sizeof path, "%s", test_path("model"));
        memset(path + begin, '/', length - begin);
        path[length] = 0;
        CHECK_OK(sl_job_create(&job));
        CHECK_OK(sl_job_set(job, "device", "cpu"));
        CHECK_OK(sl_job_set(job, "model", path));
        sl_status status = sl_setup_resolve(job, &s);
        CHECK(status == (length < 1024 ? SL_OK : SL_E_USAGE));
        if (length < 1024)
            CHECK_STR(s.model_folder, path);
        else
            CHECK_STR(sl_error_message(), "--model has a path of 1024 bytes: use one of at most 1023");
        sl_job_destroy(job);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(defaults);
    RUN(values);
    RUN(ranges);
    RUN(defaults_that_follow);
    RUN(options_of_optimizers);
    RUN(command_line_over_file);
    RUN(every_option_teaches);
    RUN(positions_that_a_model_is_made_for);
    RUN(folders_of_models);
    return test_end();
}
