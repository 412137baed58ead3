/* Texts that the model makes while it is trained: the same within every budget, those that `sluice generate` makes of the checkpoint, at
 * the same steps in a run that was interrupted; and no bit of the training moves. */
#include "infer/generate.h"
#include "train/run.h"
#include "train/run_log.h"

static const char sampled[] = "sample-every 2 sample-prompt 'water runs' sample-tokens 20";

static void texts_of(const event_log *log, char all[4096])
{
    const sl_json *e;
    size_t at = 0;
    for (int64_t n = 0; (e = event(log, "sample", n)) != NULL; n++)
        at += (size_t) snprintf(all + at, 4096 - at, "%d:%s|", (int) number(e, "step"), string(e, "text"));
}

static void forget_logs(void)
{
    sl_region_destroy(region);
    CHECK_OK(sl_region_create(&region));
}

/* ---- bits ---- */

TEST(no_bit_of_the_training_moves)
{
    static const char *const places[] = {"threads 1", "threads 3 device-mem 60%", "device-mem 45%",
                                         "device-mem 30% host-mem 40MiB val-every 2 val-share 0.2 val-steps 1"};
    static const char *const precisions[] = {"precision f32", "precision bf16-master"};
    for (int64_t p = 0; p < SL_COUNT(precisions); p++) {
        outcome plain;
        char with[4096], first[4096] = "";
        event_log *log;
        REQUIRE(sl_alloc(&log, 1, sizeof *log) == SL_OK);
        run_job(precisions[p], 5, &plain);
        for (int64_t i = 0; i < SL_COUNT(places); i += 1 + p) {
            outcome o;
            forget_logs(); /* the host's peak would count them */
            snprintf(out, sizeof out, "%s-%d-%d", test_path("bits"), (int) p, (int) i);
            snprintf(options, sizeof options, "%s %s %s out '%s'", precisions[p], sampled, places[i], out);
            run_job(options, 5, &o);
            if (!strstr(places[i], "val-share"))
                CHECK_MSG(same_run(&o, &plain), "%s: other losses or weights with samples", options);
            read_log(log);
            texts_of(log, with);
            if (i == 0)
                memcpy(first, with, sizeof first);
            if (!strstr(places[i], "val-share")) /* holds out some of the data */
                CHECK_STR(with, first);
            CHECK_STR(steps_of(log, "sample"), "2 4 5");
            for (int tier = 0; tier < SL_TIER_COUNT; tier++)
                CHECK_MSG(o.view.measured.peak_bytes[tier] <= o.view.budget_bytes[tier] &&
                              o.view.measured.peak_bytes[tier] <= o.view.predicted.peak_bytes[tier],
                          "%s: %zu bytes of tier %d", options, o.view.measured.peak_bytes[tier], tier);
        }
        sl_free(log);
    }
}

/* With dropout, adapters beside a frozen model, and an optimizer of other states: what the step's plan has and a sample's has not. */
TEST(other_jobs)
{
    static const char *const jobs[] = {"lora-rank 4 from-scratch true device-mem 60%", "optimizer adamw8bit clip 1",
                                       "mask-documents true seqlen 96"};
    for (int64_t i = 0; i < SL_COUNT(jobs); i++) {
        outcome plain, with;
        char both[600];
        run_job(jobs[i], 3, &plain);
        snprintf(both, sizeof both, "%s sample-every 1 sample-prompt x sample-tokens 8", jobs[i]);
        run_job(both, 3, &with);
        CHECK_MSG(same_run(&plain, &with), "%s: other losses or weights with samples", jobs[i]);
        CHECK_I64(with.view.sample_step, 3);
    }
}

/* ---- the text ---- */

static void generate_text(const char *model, char text[600])
{
    sl_options *o;
    int64_t n;
    sl_generate *g;
    sl_generated r;
    const sl_option *table = sl_generate_table(&n);
    CHECK_OK(sl_options_create(table, n, &o));
    CHECK_OK(sl_options_set(o, "model", model));
    CHECK_OK(sl_options_set(o, "prompt", "water runs"));
    CHECK_OK(sl_options_set(o, "max-tokens", "20"));
    CHECK_OK(sl_options_set(o, "seed", "1"));
    CHECK_OK(sl_options_set(o, "device", "cpu"));
    CHECK_OK(sl_options_set(o, "costs", "roofline"));
    CHECK_OK(sl_generate_create(o, NULL, NULL, &g));
    CHECK_OK(sl_generate_run(g, NULL, NULL, &r));
    snprintf(text, 600, "%s", r.text);
    sl_generate_destroy(g);
    sl_options_destroy(o);
}

TEST(the_text_of_the_checkpoint)
{
    event_log *log;
    char want[600];
    REQUIRE(sl_alloc(&log, 1, sizeof *log) == SL_OK);
    outcome o;
    snprintf(out, sizeof out, "%s", test_path("text"));
    snprintf(options, sizeof options, "%s steps 20 device cpu precision f32 out '%s'", sampled, out);
    run_job(options, 20, &o);
    read_log(log);
    const sl_json *last = event(log, "sample", 9);
    REQUIRE(last != NULL);
    CHECK_I64((int64_t) number(last, "step"), 20);
    CHECK_STR(string(last, "prompt"), "water runs");
    CHECK_STR(string(last, "stop"), "length");
    CHECK_I64(sl_json_get(last, "tokens")->count, 20);
    generate_text(out, want);
    CHECK_STR(string(last, "text"), want);
    CHECK(strlen(want) >= 10);
    sl_free(log);
}

/* A run that ends after a checkpoint: those behind it come once more in the log, and are the same. */
TEST(a_resume_keeps_the_rhythm)
{
    event_log *log;
    char whole[4096], parts[4096];
    outcome o;
    REQUIRE(sl_alloc(&log, 1, sizeof *log) == SL_OK);
    snprintf(out, sizeof out, "%s", test_path("whole"));
    snprintf(options, sizeof options, "%s sample-every 3 steps 10 out '%s'", sampled, out);
    run_job(options, 10, &o);
    read_log(log);
    CHECK_STR(steps_of(log, "sample"), "3 6 9 10");
    texts_of(log, whole);
    snprintf(out, sizeof out, "%s", test_path("parts"));
    snprintf(options, sizeof options, "%s sample-every 3 steps 10 checkpoint-every 4 resume true out '%s'", sampled,
             out);
    run_job(options, 7, &o);
    run_job(options, 10, &o);
    read_log(log);
    CHECK_STR(steps_of(log, "sample"), "3 6 6 9 10");
    texts_of(log, parts);
    const char *six = strstr(parts, "|6:"), *rest = strstr(six + 1, "|6:");
    REQUIRE(six && rest);
    CHECK(strncmp(parts, whole, (size_t) (rest - parts)) == 0);
    CHECK_STR(rest, whole + (six - parts));
    sl_free(log);
}

/* ---- refusals, and what is none ---- */

TEST(refusals)
{
    char prompt[400] = "";
    refused_job("sample-every -1", SL_E_USAGE, "--sample-every -1");
    refused_job("sample-every 1 sample-tokens 0", SL_E_USAGE, "--sample-tokens 0");
    refused_job("sample-prompt x", SL_E_USAGE, "--sample-prompt has no effect without --sample-every");
    refused_job("sample-tokens 9", SL_E_USAGE, "--sample-tokens has no effect without --sample-every");
    refused_job("model tiny data-format bytes sample-every 1", SL_E_USAGE,
                "--sample-every needs a tokenizer for the 10000 tokens");
    memset(prompt, 'x', 300);
    CHECK_OK(sl_dir_create(test_path("gpt2")));
    static const char config[] = "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 48, \"n_head\": 3, "
                                 "\"vocab_size\": 256, \"n_positions\": 96, \"attn_pdrop\": 0.0}";
    CHECK_OK(sl_file_write_atomic(test_path("gpt2/config.json"), config, sizeof config - 1));
    snprintf(options, sizeof options, "model '%s' sample-every 1 sample-prompt %s", test_path("gpt2"), prompt);
    refused_job(options, SL_E_USAGE, "--sample-prompt has 301 tokens, but model");
    /* One that leaves fewer positions than --sample-tokens is answered as far as they go. */
    prompt[90] = 0;
    outcome o;
    snprintf(options, sizeof options, "model '%s' steps 1 sample-every 1 sample-prompt %s", test_path("gpt2"), prompt);
    run_job(options, 1, &o);
    CHECK_I64(o.view.sample_step, 1);
}

/* The heap's share of the host budget, and of that what samples begin with. */
static size_t reserve_of(const char *text, size_t *samples)
{
    sl_trainer *t;
    sl_job *job = make_job(text);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    const size_t reserve = t->prepared.reserve_bytes;
    *samples = t->prepared.samples ? t->prepared.samples->heap_bytes : 0;
    sl_trainer_destroy(t);
    return reserve;
}

/* What a tokenizer takes is part of the host's budget. */
TEST(with_a_tokenizer)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 768, \"rms_norm_eps\": 1e-5, "
        "\"max_position_embeddings\": 512, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false}";
    char model[400], *text;
    size_t length;
    outcome plain, with, again;
    snprintf(model, sizeof model, "%s", test_path("folder"));
    CHECK_OK(sl_dir_create(model));
    CHECK_OK(sl_file_write_atomic(test_path("folder/config.json"), config, sizeof config - 1));
    CHECK_OK(sl_file_read_all(SL_SOURCE_DIR "/tests/golden/chats/bytes/tokenizer.json", 1 << 20, &text, &length));
    CHECK_OK(sl_file_write_atomic(test_path("folder/tokenizer.json"), text, length));
    sl_free(text);
    const char *job = "model '%s' cache '%s' steps 2 device-mem 50%% %s";
    snprintf(options, sizeof options, job, model, test_path("cache"), "");
    run_job(options, 2, &plain); /* fills the cache of tokens, for which the plan does not count */
    snprintf(options, sizeof options, job, model, test_path("cache"),
             "host-mem 20MiB sample-every 1 sample-prompt 'The hill'");
    run_job(options, 2, &with);
    run_job(options, 2, &again);
    CHECK(same_run(&plain, &with) && same_run(&plain, &again));
    CHECK_I64(with.view.sample_step, 2);
    CHECK_MSG(again.view.measured.peak_bytes[SL_TIER_HOST] <= again.view.predicted.peak_bytes[SL_TIER_HOST] &&
                  again.view.predicted.peak_bytes[SL_TIER_HOST] <= again.view.budget_bytes[SL_TIER_HOST],
              "%zu bytes of host memory, %zu predicted", again.view.measured.peak_bytes[SL_TIER_HOST],
              again.view.predicted.peak_bytes[SL_TIER_HOST]);
    size_t bytes, none, sampled_reserve = reserve_of(options, &bytes);
    snprintf(options, sizeof options, job, model, test_path("cache"), "");
    CHECK(sampled_reserve >= reserve_of(options, &none) + bytes && none == 0);
    CHECK_MSG(bytes > 20 * length, "%zu bytes for a tokenizer.json of %zu", bytes, length);
    snprintf(options, sizeof options, job, model, test_path("cache"), "sample-every 1");
    refused_job(options, SL_E_USAGE, "names no token that begins a text: give a prompt");
}

/* K/V for a very long text do not fit beside the training state. */
TEST(does_not_fit)
{
    refused_job(
        "device-mem 2MiB host-mem 32MiB sample-every 1 sample-tokens 200000", SL_E_DOES_NOT_FIT,
        "the samples of --sample-every beside it do not fit 2.0 MiB of device and 32.0 MiB of host memory: raise a "
        "budget, or use fewer --sample-tokens");
    sl_prediction_view view;
    prediction_job("device-mem 2MiB host-mem 64MiB sample-every 1 sample-tokens 64", &view);
    CHECK(view.feasible);
}

/* The embedding of the token that begins a sample; the data has none. */
TEST(weights_without_logits)
{
    sl_job *job = make_job("steps 2 sample-every 1");
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    const sl_param *first;
    test_expect_warnings(1, "the sample after step 1 has ended early");
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    first = &t->prepared.program->params[0];
    sl_store_part at = {&t->store, 0, SL_PART_WEIGHT};
    CHECK_OK(sl_store_write_part(&at, 0, (float[]){NAN, NAN}, 2 * sl_dtype_bytes(first->type.dtype)));
    CHECK_OK(sl_trainer_step(t, &result));
    CHECK_STR(t->samples.why, "not finite");
    CHECK_STR(sl_run_samples_text(&t->samples), "");
    sl_trainer_destroy(t);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    CHECK_OK(sl_region_create(&region));
    RUN(no_bit_of_the_training_moves);
    RUN(other_jobs);
    RUN(the_text_of_the_checkpoint);
    RUN(a_resume_keeps_the_rhythm);
    RUN(refusals);
    RUN(with_a_tokenizer);
    RUN(does_not_fit);
    RUN(weights_without_logits);
    sl_region_destroy(region);
    return test_end();
}
