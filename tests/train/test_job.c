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
    CHECK_I64(s.max_documents, 256);
    sl_job_destroy(job);
    resolve((const char *const[]){"hw", "h200", "seqlen", "8192", "tokens-per-step", "524288", NULL}, &s, &job);
    CHECK(!s.program.any_order); /* bits before speed, unless asked */
    CHECK_STR(s.device, "cuda"); /* planned for, whether or not it is here */
    CHECK(!s.measured && s.program.precision == SL_PRECISION_BF16_MASTER);
    CHECK_I64(s.program.chunking.chunk_tokens, 8192);
    CHECK(s.program.workspace_limit == 0); /* no budget, no limit */
    sl_job_destroy(job);
    resolve((const char *const[]){"any-order", "true", NULL}, &s, &job);
    CHECK(s.program.any_order);
    sl_job_destroy(job);
    resolve((const char *const[]){"hw", "h200", "seqlen", "1048576", "device-mem", "32GiB", NULL}, &s, &job);
    CHECK_I64(s.program.chunking.chunk_tokens, 2048); /* pairs of query and key are bounded */
    CHECK(s.program.workspace_limit == ((size_t) 32 << 30) / 20);
    sl_job_destroy(job);
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
    CHECK_STR(sl_job_get(job, "config"), config);
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

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(defaults);
    RUN(values);
    RUN(command_line_over_file);
    RUN(every_option_teaches);
    RUN(positions_that_a_model_is_made_for);
    return test_end();
}
