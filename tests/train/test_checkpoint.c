/* Checkpoints: what is written comes back to the bit; every fault on the way leaves the older ones valid and nothing half-done
 * under a final name; another job is refused. test_checkpoint_damage has what damage does. */

#include <sys/stat.h>

#include "checkpoint_fixture.h"
#include "core/fault.h"
#include "train/companions.h"
#include "train/identity.h"

TEST(round_trip)
{
    /* GPT-2's matrices are transposed in Hugging Face's files. */
    static const char gpt2[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 48, \"n_head\": 3, \"vocab_size\": 256, "
        "\"n_positions\": 32, \"attn_pdrop\": 0}";
    CHECK_OK(sl_file_write_atomic(test_path("config.json"), gpt2, sizeof gpt2 - 1));
    const char *const models[] = {"byte-test", test_path("config.json")};
    for (int m = 0; m < 2; m++)
        for (sl_precision p = SL_PRECISION_F32; p <= SL_PRECISION_BF16_MASTER; p++) {
            fixture f;
            char name[64];
            snprintf(name, sizeof name, "round-%d-%d", m, (int) p);
            open_fixture(&f, models[m], p, test_path(name));
            expect(&f, -1);
            CHECK_OK(write_step(&f, 100));
            expect(&f, 100);
            close_fixture(&f);
        }
}

TEST(keeps_the_last)
{
    fixture f;
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("keep"));
    for (int64_t step = 1; step <= 5; step++)
        CHECK_OK(write_step(&f, step));
    CHECK(!sl_dir_exists(test_path("keep/checkpoints/step-00000003")));
    CHECK(sl_dir_exists(test_path("keep/checkpoints/step-00000004")));
    expect(&f, 5);
    CHECK_OK(write_step(&f, 5)); /* the same step again */
    expect(&f, 5);
    CHECK_OK(sl_dir_create(test_path("keep/checkpoints/step-00000009.tmp"))); /* what a killed writer leaves */
    expect(&f, 5);
    CHECK(!sl_dir_exists(test_path("keep/checkpoints/step-00000009.tmp")));
    int64_t newest;
    CHECK_OK(sl_checkpoint_newest(test_path("keep"), &newest));
    CHECK_I64(newest, 5);
    close_fixture(&f);
}

/* The k-th event of each kind fails, for every k until none is left to fail. */
TEST(every_fault)
{
    fixture f;
    int64_t step = 1;
    test_expect_warnings(TEST_ANY, "an old checkpoint could not be removed");
    test_expect_warnings(TEST_ANY, "tokenizer.json is not copied into the checkpoint");
    open_fixture(&f, "byte-test", SL_PRECISION_BF16_MASTER, test_path("faults"));
    CHECK_OK(sl_dir_create(test_path("faults-source")));
    CHECK_OK(sl_file_write_atomic(test_path("faults-source/tokenizer.json"), "{}", 2));
    snprintf(f.setup.model_folder, sizeof f.setup.model_folder, "%s", test_path("faults-source"));
    CHECK_OK(write_step(&f, step));
    for (sl_fault_kind kind = 0; kind < SL_FAULT_COUNT; kind++) {
        int64_t failures = 0;
        for (int64_t nth = 1; nth < 10000; nth++) {
            memory_scramble(&f.memory, (uint64_t) step + 1);
            sl_progress progress = {step + 1, 4 * (step + 1), step};
            char path[1024];
            sl_fault_arm(kind, nth);
            sl_status status = sl_checkpoint_write(&f.memory.store, &f.identity, f.job->options, &progress, path);
            int64_t events = sl_fault_events(kind);
            sl_fault_arm(kind, 0);
            if (status != SL_OK) {
                failures++;
                CHECK(status == (kind == SL_FAULT_ALLOC ? SL_E_MEMORY : SL_E_IO));
                CHECK_CONTAINS(sl_error_message(), "step");
            }
            /* Either the new one is whole or the one before is what a resume finds: never anything in between. A failed fsync of
             * the folder after the rename reports failure although the name is already there, so both may be. */
            sl_checkpoint found;
            CHECK_OK(sl_checkpoint_find(&f.memory.store, &f.identity, &found));
            if (status == SL_OK)
                CHECK_I64(found.progress.step, step + 1);
            else
                CHECK(found.progress.step == step || found.progress.step == step + 1);
            expect(&f, found.progress.step);
            step = found.progress.step;
            if (events < nth)
                break;
        }
        CHECK_MSG(failures > 0 || kind == SL_FAULT_READ, "no fault of kind %d was felt", (int) kind);
    }
    close_fixture(&f);
}

/* What killed writers leave is removed before a run goes on or begins anew; what has other names is not touched. */
TEST(leftovers_are_removed)
{
    static const char *const left[] = {"step-00000003.tmp", "step-00000001.old.tmp", "step-00000007.tmp"};
    static const char *const kept[] = {"notes.tmp", "step-00000002", "steps", "step-2"};
    char path[512];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s/deep", test_path("leftovers"), left[i]);
        CHECK_OK(sl_dir_create(path));
        snprintf(path, sizeof path, "%s/checkpoints/%s/model.safetensors.tmp", test_path("leftovers"), left[i]);
        put_file(path, "half", 4);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", test_path("leftovers"), kept[i]);
        CHECK_OK(sl_dir_create(path));
    }
    int64_t newest;
    CHECK_OK(sl_checkpoint_newest(test_path("leftovers"), &newest)); /* looks, and touches nothing */
    CHECK_I64(newest, 2);
    CHECK(sl_dir_exists(test_path("leftovers/checkpoints/step-00000003.tmp")));
    CHECK_OK(sl_checkpoint_tidy(test_path("leftovers")));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", test_path("leftovers"), left[i]);
        CHECK_MSG(!sl_dir_exists(path), "%s is still there", left[i]);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", test_path("leftovers"), kept[i]);
        CHECK_MSG(sl_dir_exists(path), "%s was removed", kept[i]);
    }
}

static void put(const char *name, const char *text)
{
    CHECK_OK(sl_file_write_atomic(test_path(name), text, strlen(text)));
}

static void holds(const char *name, const char *want)
{
    char *text;
    size_t length;
    CHECK_OK(sl_file_read_all(test_path(name), 1 << 20, &text, &length));
    CHECK_STR(text, want);
    sl_free(text);
}

/* Tokenizer and generation files come along: from the model's folder, then from the weights', and, once those are gone, from the
 * checkpoint before. */
TEST(companions_are_copied)
{
    fixture f;
    char weights[300], out[300];
    snprintf(out, sizeof out, "%s", test_path("along"));
    CHECK_OK(sl_dir_create(test_path("source")));
    CHECK_OK(sl_dir_create(test_path("weights")));
    put("source/tokenizer.json", "{\"t\": 1}");
    put("source/other.json", "no");
    put("weights/tokenizer.json", "{\"t\": 2}");
    put("weights/generation_config.json", "{\"g\": 3}");
    put("weights/tekken.json", "{}");
    CHECK_OK(sl_dir_create(test_path("weights/additional_chat_templates")));
    put("weights/additional_chat_templates/tools.jinja", "{{ tools }}");
    put("weights/additional_chat_templates/notes.txt", "no template");
    put("weights/model.safetensors", "not read here");
    open_fixture(&f, "byte-test", SL_PRECISION_F32, out);
    snprintf(f.setup.model_folder, sizeof f.setup.model_folder, "%s", test_path("source"));
    snprintf(weights, sizeof weights, "%s", test_path("weights/model.safetensors"));
    f.setup.init_from = weights;
    f.setup.companions = sl_companions_present(&f.setup);
    CHECK_OK(write_step(&f, 1));
    holds("along/checkpoints/step-00000001/tokenizer.json", "{\"t\": 1}");
    holds("along/checkpoints/step-00000001/generation_config.json", "{\"g\": 3}");
    holds("along/checkpoints/step-00000001/tekken.json", "{}");
    holds("along/checkpoints/step-00000001/additional_chat_templates/tools.jinja", "{{ tools }}");
    CHECK(!sl_file_exists(test_path("along/checkpoints/step-00000001/additional_chat_templates/notes.txt")));
    CHECK(!sl_file_exists(test_path("along/checkpoints/step-00000001/other.json")));
    CHECK_OK(sl_dir_remove(test_path("source")));
    CHECK_OK(sl_dir_remove(test_path("weights")));
    CHECK_OK(write_step(&f, 2));
    holds("along/checkpoints/step-00000002/tokenizer.json", "{\"t\": 1}");
    holds("along/checkpoints/step-00000002/generation_config.json", "{\"g\": 3}");
    holds("along/checkpoints/step-00000002/additional_chat_templates/tools.jinja", "{{ tools }}");
    expect(&f, 2);

    /* Gone altogether: a warning, and the checkpoint is written all the same. A pipe does not stop it either. */
    test_expect_warnings(1, "the checkpoint has no tokenizer.json");
    test_expect_warnings(1, "vocab.json is not copied into the checkpoint");
    REQUIRE(unlink(test_path("along/checkpoints/step-00000002/tokenizer.json")) == 0);
    REQUIRE(mkfifo(test_path("along/checkpoints/step-00000002/vocab.json"), 0600) == 0);
    alarm(20);
    CHECK_OK(write_step(&f, 3));
    alarm(0);
    expect(&f, 3);
    CHECK(!sl_file_exists(test_path("along/checkpoints/step-00000003/vocab.json")));
    close_fixture(&f);
}

/* Weights in several files, as transformers writes them: the index names every tensor's file, a resume reads and checks them all. */
TEST(weights_in_several_files)
{
    fixture f;
    sl_checkpoint found;
    sl_tensors *tensors;
    char folder[400], path[600], *text;
    size_t length;
    open_fixture(&f, "byte-test", SL_PRECISION_BF16_MASTER, test_path("sharded"));
    char out[300];
    snprintf(out, sizeof out, "%s", test_path("sharded"));
    f.setup.out = out;
    f.setup.shard_bytes = 20000;
    CHECK_OK(write_step(&f, 1));
    CHECK_OK(write_step(&f, 2));
    expect(&f, 2);
    snprintf(folder, sizeof folder, "%s/checkpoints/step-00000002", out);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK(!sl_file_exists(path));
    CHECK_OK(sl_tensors_open(folder, &tensors));
    int64_t total = 0;
    int32_t files = 0;
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
        total += sl_tensors_at(tensors, i)->bytes;
        files = SL_MAX(files, sl_tensors_at(tensors, i)->file + 1);
    }
    sl_tensors_close(tensors);
    CHECK(files > 2);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    char want[64];
    snprintf(want, sizeof want, "\"total_size\": %lld", (long long) total);
    CHECK_CONTAINS(text, want);
    snprintf(want, sizeof want, "model-%05d-of-%05d.safetensors", files, files);
    CHECK_CONTAINS(text, want);
    sl_free(text);

    /* One byte of any file is damage, and so is a file that is gone. */
    test_expect_warnings(TEST_ANY, "is damaged");
    for (int32_t i = 1; i <= files; i++) {
        char aside[600];
        snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", folder, i, files);
        snprintf(aside, sizeof aside, "%s/aside", folder);
        REQUIRE(rename(path, aside) == 0);
        CHECK_OK(sl_checkpoint_find(&f.memory.store, &f.identity, &found));
        CHECK_I64(found.progress.step, 1);
        REQUIRE(rename(aside, path) == 0);
        CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
        text[length - 1] ^= 1;
        CHECK_OK(sl_file_write_atomic(path, text, length));
        CHECK_OK(sl_checkpoint_find(&f.memory.store, &f.identity, &found));
        CHECK_I64(found.progress.step, 1);
        text[length - 1] ^= 1;
        CHECK_OK(sl_file_write_atomic(path, text, length));
        sl_free(text);
    }
    expect(&f, 2);

    /* The next checkpoint may have other files. */
    f.setup.shard_bytes = 0;
    CHECK_OK(write_step(&f, 3));
    expect(&f, 3);
    close_fixture(&f);
}

TEST(another_job_is_refused)
{
    fixture f;
    sl_checkpoint found;
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("other"));
    CHECK_OK(write_step(&f, 3));
    f.setup.seed = 12;
    CHECK_FAILS(sl_checkpoint_find(&f.memory.store, &f.identity, &found), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "seed 11, but this one has 12");
    f.setup.seed = 11;
    f.identity.data = "4321";
    CHECK_FAILS(sl_checkpoint_find(&f.memory.store, &f.identity, &found), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "data");
    f.identity.data = "1234";
    f.identity.sample = "8765";
    CHECK_FAILS(sl_checkpoint_find(&f.memory.store, &f.identity, &found), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "have changed since");
    f.identity.sample = "5678";
    f.setup.program.precision = SL_PRECISION_BF16;
    CHECK_FAILS(sl_checkpoint_find(&f.memory.store, &f.identity, &found), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "precision f32");
    f.setup.program.precision = SL_PRECISION_F32;
    f.setup.model.layers++;
    CHECK_FAILS(sl_checkpoint_find(&f.memory.store, &f.identity, &found), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "layers");
    f.setup.model.layers--;
    f.setup.program.chunking.seqlen *= 2;
    CHECK_FAILS(sl_checkpoint_find(&f.memory.store, &f.identity, &found), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "sequence length");
    f.setup.program.chunking.seqlen /= 2;
    f.setup.threads = 7; /* placement may change */
    f.setup.budget[SL_TIER_DEVICE] = 1 << 20;
    CHECK_OK(sl_checkpoint_find(&f.memory.store, &f.identity, &found));
    close_fixture(&f);
}

/* What the log says when the checkpoint of step 30 is found: `want` as a part of it, or nothing at all. */
static void hears(fixture *f, const char *want)
{
    sl_checkpoint found;
    heard[0] = 0;
    CHECK_OK(sl_checkpoint_find(&f->memory.store, &f->identity, &found));
    if (want)
        CHECK_CONTAINS(heard, want);
    else
        CHECK_STR(heard, "");
}

/* The options that fix the bits and not the run: warned of; more steps: told, in one line. */
TEST(other_rates_are_told)
{
    fixture f;
    sl_log_set(hear, NULL, SL_LOG_INFO);
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("rates"));
    f.setup.steps = 100;
    f.setup.schedule = (sl_schedule){SL_SCHEDULE_COSINE, 1e-3, 1e-4, 5, 100, 20};
    CHECK_OK(write_step(&f, 30));
    const sl_setup as_written = f.setup;
    hears(&f, NULL);
    f.setup.schedule.peak = 2e-3;
    hears(&f, "warning: ");
    CHECK_CONTAINS(heard, "other learning rate (0.001, now 0.002): the run goes on, but not to the same bits");
    f.setup = as_written, f.setup.schedule.least = 0;
    hears(&f, "other least learning rate (0.0001, now 0)");
    f.setup = as_written, f.setup.schedule.kind = SL_SCHEDULE_WSD;
    hears(&f, "other schedule (cosine, now wsd)");
    f.setup = as_written, f.setup.schedule.warmup = 7;
    hears(&f, "other warm-up (5, now 7)");
    f.setup = as_written, f.setup.program.weight_decay += 0.5f;
    hears(&f, "other weight decay");
    f.setup = as_written, f.setup.program.optimizer_options[SL_OPTIMIZER_ADAMW][0] += 0.25f;
    hears(&f, "other beta1");
    f.setup = as_written, f.setup.program.optimizer_options[SL_OPTIMIZER_ADAMW][1] += 0.25f;
    hears(&f, "other beta2");
    f.setup = as_written, f.setup.program.optimizer_options[SL_OPTIMIZER_ADAMW][2] += 0.25f;
    hears(&f, "other optimizer epsilon");
    f.setup = as_written, f.setup.clip = 1;
    hears(&f, "other clipping (0, now 1)");
    f.setup = as_written, f.setup.on_nan = SL_ON_NAN_SKIP;
    hears(&f, "other --on-nan (stop, now skip)");
    f.setup = as_written, f.setup.schedule.decay = 3; /* of wsd */
    hears(&f, NULL);
    f.setup = as_written, f.setup.steps = 200, f.setup.schedule.warmup = 10;
    hears(&f, "the run was begun for 100 steps and goes on for 200");
    CHECK(!strstr(heard, "warning") && strchr(heard, '\n') == heard + strlen(heard) - 1);

    f.setup = as_written, f.setup.schedule.kind = SL_SCHEDULE_CONSTANT;
    CHECK_OK(write_step(&f, 30));
    f.setup.steps = 200, f.setup.schedule.warmup = 10;
    hears(&f, NULL);
    f.setup.schedule.warmup = 31;
    hears(&f, "goes on for 200");
    close_fixture(&f);
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
}

/* A checkpoint from before a fact was written down. */
TEST(absent_facts_are_not_compared)
{
    fixture f;
    sl_json_writer w = {0};
    sl_region *region;
    const sl_json *root;
    static const char *const names[] = {"steps\"",   "schedule\"", "learning rate\"",
                                        "warm-up\"", "clipping\"", "data content\""};
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("absent"));
    sl_json_begin_object(&w, NULL);
    sl_identity_put(&f.identity, &w);
    sl_json_end_object(&w);
    REQUIRE(sl_text_status(&w.text) == SL_OK);
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        for (char *at = w.text.data; (at = strstr(at, names[i])) != NULL;)
            *at = '?';
    f.setup.steps = 3, f.setup.clip = 1, f.identity.sample++;
    f.setup.schedule = (sl_schedule){.kind = SL_SCHEDULE_WSD, .peak = 1, .warmup = 2};
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "facts", w.text.data, w.text.length, &root));
    heard[0] = 0;
    sl_log_set(hear, NULL, SL_LOG_INFO);
    CHECK_OK(sl_identity_compare(&f.identity, "facts", root, 1));
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
    CHECK_STR(heard, "");
    sl_region_destroy(region);
    sl_text_free(&w.text);
    close_fixture(&f);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(round_trip);
    RUN(keeps_the_last);
    RUN(every_fault);
    RUN(leftovers_are_removed);
    RUN(companions_are_copied);
    RUN(weights_in_several_files);
    RUN(another_job_is_refused);
    RUN(other_rates_are_told);
    RUN(absent_facts_are_not_compared);
    return test_end();
}
