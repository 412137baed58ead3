/* The command line as a user meets it: exit codes, one sentence for every mistake, the keys of --json, help that leaves nothing out,
 * signals. Drives the built program; everything happens in the test's own folder. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/json.h"
#include "test.h"
#include "train/job.h"

/* Two threads on any machine: each one more takes its workspace of the budgets below. */
#define JOB "--model byte-test --seqlen 32 --tokens-per-step 64 --costs roofline --threads 2 "
#define TRAIN "train " JOB "--data text.txt "

static char out[1 << 16], err[1 << 16];

static void read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "rb");
    REQUIRE(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

/* `sluice ARGS` in the test's folder; its exit code, with what it printed in `out` and `err`. */
static int sluice_with(const char *before, const char *args)
{
    char command[4096];
    snprintf(command, sizeof command, "cd '%s' && %s '%s' %s >out.log 2>err.log", test_dir(), before, SL_BINARY, args);
    int status = system(command);
    read_text(test_path("out.log"), out, sizeof out);
    read_text(test_path("err.log"), err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int sluice(const char *args)
{
    return sluice_with("", args);
}

static void write_text(const char *name, const char *text)
{
    CHECK_OK(sl_file_write_atomic(test_path(name), text, strlen(text)));
}

/* The code, and nothing on stderr but one line that begins with "sluice: " and contains `part`. */
static void check_refused(int got, int code, const char *args, const char *part)
{
    const char *end = strchr(err, '\n');
    CHECK_MSG(got == code, "sluice %s: exit code %d, not %d: %s", args, got, code, err);
    CHECK_MSG(strncmp(err, "sluice: ", 8) == 0 && end && !end[1], "sluice %s: not one sentence: %s", args, err);
    CHECK_MSG(strstr(err, part) != NULL, "sluice %s: \"%s\" without \"%s\"", args, err, part);
}

static void refused(int code, const char *args, const char *part)
{
    check_refused(sluice(args), code, args, part);
}

/* The last line of stdout; the tree lives until the next call. */
static const sl_json *last_line(void)
{
    static sl_region *region;
    const sl_json *root = NULL;
    sl_region_destroy(region);
    region = NULL;
    CHECK_OK(sl_region_create(&region));
    char *end = out + strlen(out);
    REQUIRE(end > out && end[-1] == '\n');
    *--end = 0;
    char *line = strrchr(out, '\n');
    line = line ? line + 1 : out;
    CHECK_OK(sl_json_parse(region, "stdout", line, strlen(line), &root));
    REQUIRE(root->kind == SL_JSON_OBJECT);
    return root;
}

static void check_keys(const sl_json *object, const char *const *keys, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        CHECK_MSG(sl_json_get(object, keys[i]) != NULL, "the object has no \"%s\"", keys[i]);
}

static const char *hash_of(const char *args)
{
    static char hashes[4][32];
    static int turn;
    char *hash = hashes[turn++ & 3];
    REQUIRE(sluice(args) == 0);
    const sl_json *value = sl_json_get(last_line(), "weights_hash");
    REQUIRE(value && value->kind == SL_JSON_STRING && value->length == 16);
    return strcpy(hash, value->string);
}

/* ---- help and lists ---- */

static void check_help(const char *command, const sl_option *table, int64_t count)
{
    char args[64];
    snprintf(args, sizeof args, "%s --help", command);
    CHECK_I64(sluice(args), 0);
    for (int64_t i = 0; i < count; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "--%s", table[i].name);
        CHECK_MSG(strstr(out, flag) != NULL, "sluice %s does not tell of %s", args, flag);
    }
    CHECK_CONTAINS(out, "usage: sluice ");
}

/* Help fits a terminal of 80 columns. */
static void check_columns(const char *args)
{
    CHECK_I64(sluice(args), 0);
    for (const char *line = out; *line; line += strcspn(line, "\n") + 1)
        CHECK_MSG(strcspn(line, "\n") <= 80, "sluice %s: a line of %zu columns", args, strcspn(line, "\n"));
}

TEST(help)
{
    int64_t count;
    const sl_option *table = sl_job_table(&count);
    CHECK_I64(sluice("help models"), 0);
    CHECK_CONTAINS(out, "usage: sluice models");
    check_help("train", table, count);
    CHECK(!strstr(out, "[-1]")); /* --document-token tells its default in words */
    check_help("plan", table, count);
    static const sl_option init[] = {{.name = "model"}, {.name = "out"},       {.name = "weights"},
                                     {.name = "seed"},  {.name = "precision"}, {.name = "force"}};
    check_help("init", init, SL_COUNT(init));
    check_help("models", &(sl_option){.name = "json"}, 1);
    static const sl_option report[] = {{.name = "out"}, {.name = "trace"}, {.name = "csv"}, {.name = "quiet"}};
    check_help("report", report, SL_COUNT(report));
    static const sl_option sweep[] = {{.name = "model"},    {.name = "seqlen"},   {.name = "device-mem"},
                                      {.name = "host-mem"}, {.name = "run"},      {.name = "jobs"},
                                      {.name = "out"},      {.name = "csv"},      {.name = "force"},
                                      {.name = "hw"},       {.name = "precision"}};
    check_help("sweep", sweep, SL_COUNT(sweep));
    CHECK_I64(sluice("--help"), 0);
    static const char *const commands[] = {"train", "plan", "init", "models", "sweep", "report", "version"};
    for (int64_t i = 0; i < SL_COUNT(commands); i++)
        CHECK_CONTAINS(out, commands[i]);
    static const char *const pages[] = {"--help",        "train --help",  "plan --help",  "init --help",
                                        "models --help", "system --help", "bench --help", "sweep --help",
                                        "report --help", "help --help",   "man --help",   "completion --help",
                                        "version --help"};
    for (int64_t i = 0; i < SL_COUNT(pages); i++)
        check_columns(pages[i]);
    CHECK_I64(sluice("--version"), 0);
    CHECK_STR(out, "sluice " SL_VERSION "\n");
    CHECK_I64(sluice("version"), 0);
    CHECK_STR(out, "sluice " SL_VERSION "\n");
    CHECK_I64(sluice(""), 2);
    CHECK_CONTAINS(err, "usage: sluice COMMAND");
    CHECK_I64(sluice("models"), 0);
    CHECK_CONTAINS(out, "llama3-8b");
    CHECK_I64(sluice("models --json"), 0);
    CHECK(sl_json_get(last_line(), "models")->count >= 15);
    check_refused(sluice_with("exec >/dev/full;", "models 2>err.log #"), 1, "models",
                  "cannot write to standard output");
}

/* ---- usage ---- */

static int sluice_on_one_core(const char *args)
{
    cpu_set_t all, one;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    int code = sluice(args);
    REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
    return code;
}

/* A few threads a core are somebody's choice, more a mistake; and they are no faster than the core. */
TEST(threads)
{
    static const char *const commands[] = {"plan " JOB "--threads 17", TRAIN "--threads 17", "bench flops --threads 17",
                                           "system --threads 17"};
    for (int64_t i = 0; i < SL_COUNT(commands); i++)
        check_refused(sluice_on_one_core(commands[i]), 2, commands[i],
                      "--threads 17 is too large: this process may use 1 core; give 1 to 16");
    REQUIRE(sluice_on_one_core("plan " JOB "--device cpu --threads 1 --json") == 0);
    double alone = sl_json_get(last_line(), "step_s")->number;
    REQUIRE(sluice_on_one_core("plan " JOB "--device cpu --threads 16 --json") == 0);
    CHECK(sl_json_get(last_line(), "step_s")->number > 0.9 * alone);
}

TEST(usage)
{
    refused(2, "trian", "unknown command \"trian\": did you mean \"train\"?");
    refused(2, "zzz", "unknown command \"zzz\": `sluice --help` lists those there are");
    refused(2, "version --jsn", "unknown option --jsn; --help lists those there are");
    refused(2, "plan --model byte-tset", "did you mean \"byte-test\"?");
    refused(2, "plan --model byte-test --hw h20", "there is no hardware \"h20\": did you mean \"h200\"?");
    refused(2, "train", "--model is missing");
    refused(2, "plan", "--model is missing");
    refused(2, "init --model byte-test", "--out");
    refused(2, "train --sepqlen 3", "did you mean --seqlen?");
    refused(2, "models --jsn", "did you mean --json?");
    refused(2, "train --zzz 3", "unknown option --zzz");
    refused(2, "train bla", "\"bla\" is not an option");
    refused(2, TRAIN "--steps", "--steps needs a value");
    refused(2, TRAIN "--steps abc", "--steps: \"abc\" is not a whole number");
    refused(2, TRAIN "--steps 0", "at least 1");
    refused(2, TRAIN "--lr -1", "--lr -1 is out of range");
    refused(2, TRAIN "--min-lr 1 --lr 3e-4", "--min-lr 1 is above --lr 0.0003: give a smaller one");
    refused(2, TRAIN "--seqlen 99999999999999999999999", "is too large a number");
    refused(2, TRAIN "--host-mem 20000000000PiB", "is more memory than can be addressed");
    refused(2, TRAIN "--lr nan", "--lr: \"nan\"");
    refused(2, TRAIN "--threads 100000", "--threads 100000 is too large");
    refused(2, "plan " JOB "--threads -1", "--threads -1 is too small");
    refused(2, TRAIN "--device-mem 12XB", "--device-mem: \"12XB\"");
    refused(2, TRAIN "--precision fp8", "f32|bf16|bf16-master");
    refused(2, TRAIN "--device abacus", "no device \"abacus\"");
    refused(2, "plan " JOB "--hw h100 --device abacus", "no device \"abacus\"");
    refused(2, TRAIN "--device sim", "--device sim computes nothing");
    refused(2, TRAIN "--hw h900", "no hardware \"h900\"");
    refused(2, TRAIN "--hw h200 --costs measured", "drop one of them");
    refused(2, TRAIN "--seqlen 100 --tokens-per-step 150", "multiple of --seqlen 100");
    refused(2, "train --data text.txt --model gpt2 --seqlen 2048", "1024 positions");
    refused(2, "plan --model nosuch", "no model \"nosuch\"");
    refused(2, "train " JOB, "--data is missing");
    refused(2, TRAIN "--resume", "--resume needs --out");
    refused(2, TRAIN "--checkpoint-every 5", "--checkpoint-every needs --out");
    check_refused(sluice_with("SLUICE_STEPS=x", TRAIN), 2, TRAIN, "environment variable SLUICE_STEPS");
}

TEST(option_files)
{
    static const struct {
        const char *text, *message;
    } files[] = {
        {"{\n  \"stepz\": 4\n}\n", "a.json:2:12: unknown option stepz; did you mean steps?"},
        {"{\"steps\": [4]}", "a.json:1:11: steps"},
        {"{\"steps\": 4", "a.json:1:12: "},
        {"{\"steps\": 4, \"steps\": 5}", "a.json:1:21: \"steps\" stands twice"},
        {"[4]", "a configuration is a JSON object"},
        {"{\"steps\": null}", "a.json:1:11: \"steps\" is null: give a value or leave it out"},
    };
    for (int64_t i = 0; i < SL_COUNT(files); i++) {
        write_text("a.json", files[i].text);
        refused(2, TRAIN "--config a.json", files[i].message);
    }
    write_text("a.conf", "lr = 1e-3 # fine\nsteps = x\n");
    refused(2, TRAIN "--config a.conf", "a.conf:2: steps: \"x\"");
    refused(2, TRAIN "--config nosuch.json", "cannot read nosuch.json: no such file");
    refused(2, TRAIN "--config /", "cannot read /: it is a folder");
    write_text("good.conf",
               "model = byte-test\nseqlen = 32\ntokens-per-step = 64\ndata = text.txt\ncosts = roofline\nsteps = 7\n");
    CHECK_I64(sluice("train --config good.conf --steps 2 --json"), 0);
    CHECK_I64(sl_json_get(last_line(), "loss")->count, 2); /* the command line wins */
    /* One file serves plan too, which opens no data and no folder. */
    CHECK_I64(sluice("plan --config good.conf --data nosuch --init-from nosuch --out text.txt/x --resume"), 0);
}

/* ---- models ---- */

static void config_refused(int code, const char *text, const char *part)
{
    write_text("broken/config.json", text);
    refused(code, "plan --model broken --costs roofline", part);
}

TEST(models)
{
    CHECK_I64(sluice("init --model byte-test --out own"), 0);
    refused(2, "init --model byte-test --out own", "own/config.json is already there");
    CHECK_I64(sluice("init --model byte-test --out own --force"), 0);
    CHECK_I64(sluice("plan --model own --seqlen 32 --costs roofline"), 0);
    CHECK_I64(sluice("plan --model own/config.json --seqlen 32 --costs roofline"), 0);
    refused(1, "init --model byte-test --out text.txt", "text.txt");
    refused(2, "plan --model llama3-1b", "llama3-1.5b");
    /* Checkpoints of interleaved rotation are any Llama's; what else a config.json holds is kept. */
    write_text("own/config.json",
               "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 176, \"num_hidden_layers\": 2, "
               "\"num_attention_heads\": 4, \"vocab_size\": 256, \"max_position_embeddings\": 512, "
               "\"rope_interleaved\": true, \"eos_token_id\": 7}");
    CHECK_I64(sluice("init --model own --out turned"), 0);
    read_text(test_path("turned/config.json"), out, sizeof out);
    CHECK_CONTAINS(out, "\"max_position_embeddings\": 512");
    CHECK_CONTAINS(out, "\"sluice_rope_order\": \"interleaved\"");
    CHECK_CONTAINS(out, "\"eos_token_id\": 7");
    CHECK_CONTAINS(out, "\"LlamaForCausalLM\"");
    CHECK_I64(sluice(TRAIN "--model turned --steps 2 --out turned-run"), 0);
    CHECK_CONTAINS(out, "turned-run/checkpoints/step-00000002 (go on with --resume; Hugging Face reads it too)\n");
    CHECK_CONTAINS(out, "weights random, seed 1\n");
    CHECK_I64(sluice(TRAIN "--model turned-run/checkpoints/step-00000002 --steps 1"), 0);
    CHECK_CONTAINS(out, "weights turned-run/checkpoints/step-00000002: 21 tensors, F32\n");
    CHECK_I64(sluice(TRAIN "--model turned-run/checkpoints/step-00000002 --steps 1 --from-scratch"), 0);
    CHECK_CONTAINS(out, "weights random, seed 1\n");
    CHECK_I64(sluice(TRAIN "--model turned --steps 3 --out turned-run --resume"), 0);
    CHECK_CONTAINS(out, "weights the checkpoint of step 2; the run began with random, seed 1\n");
    CHECK_OK(sl_dir_create(test_path("broken")));
    refused(1, "plan --model broken", "broken/config.json");
    config_refused(1, "", "broken/config.json:1:1: ");
    config_refused(1, "{\"model_type\": \"llama\"", "broken/config.json:1:");
    config_refused(1, "[]", "is a JSON object");
    config_refused(1, "{\"model_type\": \"llama\"}", "\"hidden_size\" is missing");
    config_refused(1, "{\"model_type\": \"bert\"}", "\"model_type\" is \"bert\"");
    config_refused(1, "{\"model_type\": \"llama\", \"hidden_size\": 999999999999999}", "hidden_size");
    config_refused(1, "{\"model_type\": \"llama\", \"hidden_size\": -1}", "hidden_size");
    config_refused(1, "{\"model_type\": \"llama\", \"hidden_size\": \"many\"}", "hidden_size");
    config_refused(1,
                   "\x7f"
                   "ELF",
                   "broken/config.json:1:1: ");
    char *deep = malloc(100001);
    REQUIRE(deep);
    memset(deep, '[', 100000);
    deep[100000] = 0;
    config_refused(1, deep, "nested deeper");
    free(deep);
}

/* What `init --weights` writes is what a run from scratch begins with, whatever the precision. */
TEST(initial_weights)
{
    CHECK_I64(sluice("init --model byte-test --out drawn --weights --seed 7"), 0);
    static const char *const precisions[] = {"f32", "bf16", "bf16-master"};
    for (int64_t i = 0; i < SL_COUNT(precisions); i++) {
        char args[512];
        snprintf(args, sizeof args, TRAIN "--steps 2 --seed 7 --json --precision %s", precisions[i]);
        const char *scratch = hash_of(args);
        snprintf(args, sizeof args, TRAIN "--steps 2 --seed 7 --json --precision %s --init-from drawn", precisions[i]);
        CHECK_STR(hash_of(args), scratch);
        snprintf(args, sizeof args, TRAIN "--steps 2 --seed 7 --json --precision %s --model drawn", precisions[i]);
        CHECK_STR(hash_of(args), scratch); /* the folder's own weights */
        snprintf(args, sizeof args, TRAIN "--steps 2 --seed 8 --json --precision %s", precisions[i]);
        CHECK(strcmp(hash_of(args), scratch) != 0);
    }
    CHECK_I64(sluice("init --model byte-test --out drawn --weights --seed 7 --precision bf16 --force"), 0);
    CHECK_STR(hash_of(TRAIN "--steps 2 --seed 7 --json --precision bf16 --init-from drawn"),
              hash_of(TRAIN "--steps 2 --seed 7 --json --precision bf16"));
    refused(1, TRAIN "--init-from nosuch", "cannot read nosuch");
    refused(1, "train --data text.txt --costs roofline --model byte-nano --init-from drawn",
            "drawn/model.safetensors: tensor");
    REQUIRE(truncate(test_path("drawn/model.safetensors"), 5000) == 0);
    refused(1, TRAIN "--init-from drawn", "drawn/model.safetensors");
    write_text("drawn/model.safetensors", "zzzzzzzzzzzzzzzzzzzz");
    refused(1, TRAIN "--init-from drawn", "drawn/model.safetensors: the header claims");
}

/* ---- data ---- */

static void write_shard(const char *name, int32_t version, int32_t claimed, int64_t tokens, int64_t odd)
{
    int32_t header[256] = {20240520, version, claimed};
    uint16_t token;
    sl_writer *writer;
    CHECK_OK(sl_writer_open(test_path(name), &writer));
    CHECK_OK(sl_writer_write(writer, header, sizeof header));
    for (int64_t i = 0; i < tokens; i++) {
        token = (uint16_t) (i == odd ? 777 : i % 256);
        CHECK_OK(sl_writer_write(writer, &token, sizeof token));
    }
    CHECK_OK(sl_writer_commit(writer));
    sl_writer_destroy(writer);
}

TEST(data)
{
    write_text("empty.txt", "");
    write_text("short.txt", "hi");
    CHECK_OK(sl_dir_create(test_path("nothing")));
    refused(1, "train " JOB "--data nosuch.txt", "cannot read nosuch.txt: no such file");
    refused(1, "train " JOB "--data text.txt,nosuch.txt", "cannot read nosuch.txt: no such file");
    refused(1, "train " JOB "--data empty.txt", "empty.txt holds no tokens");
    refused(2, "train " JOB "--data short.txt", "short.txt holds 3 tokens, but 1 sequence of 32 needs 33");
    refused(1, "train " JOB "--data nothing", "nothing holds no text file");
    refused(1, "train " JOB "--data /dev/null", "/dev/null is no regular file");
    write_shard("good.bin", 1, 500, 500, -1);
    CHECK_I64(sluice("train " JOB "--steps 2 --data good.bin"), 0);
    write_shard("cut.bin", 1, 5000, 500, -1);
    refused(1, "train " JOB "--data cut.bin", "cut.bin: the header claims 5000 tokens");
    write_shard("new.bin", 9, 500, 500, -1);
    refused(1, "train " JOB "--data new.bin", "new.bin: token shard with magic 20240520 and version 9");
    write_shard("negative.bin", 1, -4, 500, -1);
    refused(1, "train " JOB "--data negative.bin", "negative.bin: the header at byte 8 claims -4 tokens");
    write_shard("vocabulary.bin", 1, 500, 500, 300);
    refused(1, "train " JOB "--steps 50 --data vocabulary.bin", "vocabulary.bin: token 300 (at byte 1624) is 777");
}

/* What does not match the model is refused in a sentence that says what to do. */
TEST(data_that_does_not_match)
{
    write_text("d.jsonl", "{\"text\": \"abc\"}\n");
    write_text("tokenizer.json", "{}\n");
    refused(1, "train " JOB "--data d.jsonl", "d.jsonl holds records");
    refused(1, "train " JOB "--data tokenizer.json", "tokenizer.json holds records");
    refused(2, "train --model tiny --seqlen 32 --tokens-per-step 64 --data text.txt",
            "suits vocabularies of 256 to 512 tokens, but the model's has 10000");
    write_shard("half.bin", 1, 500, 500, -1);
    refused(2, "train " JOB "--data text.txt,half.bin", "mixes text (text.txt) and token shards (half.bin)");
    CHECK_I64(sluice("train " JOB "--steps 1 --data d.jsonl,text.txt --data-format bytes"), 0);
}

/* The lines `data` and `val`, and the same in --json and in the event log. */
TEST(data_lines)
{
    char log[1 << 14];
    CHECK_OK(sl_dir_create(test_path("lines/.git")));
    write_text("lines/empty.txt", "");
    write_text("lines/a.jsonl", "{}");
    char text[800];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    write_text("lines/a.txt", text);
    write_shard("lines-val.bin", 1, 97, 97, -1);
    CHECK_I64(
        sluice("train " JOB "--steps 5 --data lines --val-every 5 --val-data lines-val.bin --out lines-run --json"), 0);
    CHECK_CONTAINS(out, "data    text as bytes: 1 file, 800 tokens, 24 sequences of 32\n"
                        "        skipped: 1 hidden, 1 empty, 1 record file or archive\n"
                        "        a step takes 64 tokens in 1 chunk of 64; 5 steps: 0.417 epochs\n"
                        "val     uint16 shards: 1 file, 97 tokens, 3 sequences of 32\n");
    const sl_json *data = sl_json_get(last_line(), "data");
    REQUIRE(data != NULL);
    CHECK_STR(sl_json_get(data, "kind")->string, "text as bytes");
    CHECK_I64(sl_json_get(data, "files")->integer, 1);
    CHECK_I64(sl_json_get(data, "tokens")->integer, 800);
    CHECK_I64(sl_json_get(data, "sequences")->integer, 24);
    CHECK_I64(sl_json_get(sl_json_get(data, "skipped"), "packed")->integer, 1);
    read_text(test_path("lines-run/events.jsonl"), log, sizeof log);
    CHECK_CONTAINS(log, "\"data\":{\"kind\":\"text as bytes\",\"files\":1,\"tokens\":800,"
                        "\"skipped\":{\"hidden\":1,\"empty\":1,\"packed\":1},\"sequences\":24,");
    CHECK_CONTAINS(log, "\"val_data\":{\"kind\":\"uint16 shards\",\"files\":1,\"tokens\":97,");
    CHECK_I64(sluice("train " JOB "--steps 1 --data lines --val-every 5 --val-share 0.25"), 0);
    CHECK_CONTAINS(out, "18 sequences of 32\n");
    CHECK_CONTAINS(out, "val     the last 6 sequences of the data, held out of training\n");
}

/* ---- budgets and figures ---- */

/* Everything is checked and planned, nothing is trained or written. */
TEST(dry_run)
{
    CHECK_I64(sluice(TRAIN "--steps 3 --out dry --dry-run"), 0);
    CHECK_CONTAINS(out, "fits: ");
    CHECK(!strstr(out, "step  1/"));
    CHECK(access(test_path("dry"), F_OK) != 0);
    CHECK_I64(sluice(TRAIN "--dry-run --json"), 0);
    CHECK(sl_json_get(last_line(), "feasible")->boolean);
    CHECK_I64(sluice(TRAIN "--dry-run --device-mem 1KiB"), 3);
    refused(1, "train " JOB "--data nosuch --dry-run", "nosuch");
    refused(1, TRAIN "--init-from nosuch --dry-run", "cannot read nosuch");
    refused(2, TRAIN "--hw h100 --device cuda --dry-run", "--hw h100 plans for another machine");
    CHECK_I64(sluice("sweep --model byte-test --hw h100 --seqlen 64,128 --out dry.jsonl --dry-run"), 0);
    CHECK_CONTAINS(out, "2 cells, ");
    CHECK(access(test_path("dry.jsonl"), F_OK) != 0);
    refused(2, "sweep --model byte-tset --hw h100 --dry-run", "did you mean \"byte-test\"?");
}

/* Lines of progress do not wrap. */
TEST(progress)
{
    static const char *const commands[] = {
        TRAIN "--steps 1000000 --config ends.conf --lr 1e-10 --min-lr 1e-10",
        "sweep --model byte-test --hw h100 --seqlen 64 --device-mem 100GiB,200GiB --host-mem 1000GiB --force"};
    static const char *const begins[] = {"step ", "cell "};
    write_text("ends.conf", "device-mem = 1000MiB\nhost-mem = 1000MiB\n");
    for (int64_t i = 0; i < SL_COUNT(commands); i++) {
        int64_t lines = 0;
        sluice_with("timeout -s INT 2", commands[i]);
        for (const char *line = out; *line; line += strcspn(line, "\n") + 1)
            if (strncmp(line, begins[i], 5) == 0) {
                lines++;
                CHECK_MSG(strcspn(line, "\n") <= 79, "%.120s", line);
            }
        CHECK_MSG(lines > 0, "no line of progress: %s", out);
    }
}

TEST(figures)
{
    static const char *const train[] = {"loss",
                                        "tokens_per_s",
                                        "step_s",
                                        "predicted_step_s",
                                        "tflops",
                                        "mfu",
                                        "hfu",
                                        "device_peak_bytes",
                                        "device_budget_bytes",
                                        "host_peak_bytes",
                                        "host_budget_bytes",
                                        "h2d_bytes_per_step",
                                        "d2h_bytes_per_step",
                                        "recompute_fraction",
                                        "weights_hash"};
    static const char *const plan[] = {"feasible",
                                       "min_device_bytes",
                                       "min_host_bytes",
                                       "device_peak_bytes",
                                       "host_peak_bytes",
                                       "step_s",
                                       "lower_bound_s",
                                       "tokens_per_s",
                                       "mfu",
                                       "hfu",
                                       "h2d_bytes_per_step",
                                       "d2h_bytes_per_step",
                                       "recompute_fraction",
                                       "plan_ms"};
    CHECK_I64(sluice(TRAIN "--steps 3 --device-mem 1500KiB --host-mem 1GiB --json"), 0);
    const sl_json *run = last_line();
    check_keys(run, train, SL_COUNT(train));
    CHECK_I64(sl_json_get(run, "loss")->count, 3);
    CHECK(sl_json_get(run, "device_peak_bytes")->integer <= 1500 * 1024);
    CHECK(sl_json_get(run, "host_peak_bytes")->integer <= 1 << 30);
    CHECK_I64(sl_json_get(run, "device_budget_bytes")->integer, 1500 * 1024);
    CHECK_I64(sluice("plan " JOB "--device-mem 1500KiB --host-mem 1GiB --json"), 0);
    const sl_json *prediction = last_line();
    check_keys(prediction, plan, SL_COUNT(plan));
    CHECK(sl_json_get(prediction, "feasible")->boolean);
    int64_t least = sl_json_get(prediction, "min_device_bytes")->integer;
    CHECK(least > 0 && sl_json_get(prediction, "device_peak_bytes")->integer <= 1500 * 1024);
    char args[512];
    snprintf(args, sizeof args, TRAIN "--steps 1 --host-mem 1GiB --device-mem %" PRId64, least);
    CHECK_I64(sluice(args), 0);
    snprintf(args, sizeof args, TRAIN "--steps 1 --host-mem 1GiB --device-mem %" PRId64, least - 256);
    char bytes[64];
    snprintf(bytes, sizeof bytes, "(%" PRId64 " bytes) of device", least);
    refused(3, args, bytes);
    CHECK_I64(sluice(TRAIN "--steps 2 --quiet"), 0);
    CHECK(!strstr(out, "step 1/2"));
}

TEST(budgets)
{
    refused(3, TRAIN "--device-mem 100KiB --out refused", "does not fit 100.0 KiB");
    CHECK(access(test_path("refused"), F_OK) != 0); /* nothing came of it, nothing is left */
    refused(3, TRAIN "--host-mem 100KiB", "of host memory would do");
    refused(3, TRAIN "--device-mem 100KiB --host-mem 100KiB", "of host memory together would do");
    CHECK_I64(sluice("plan " JOB "--device-mem 100KiB --host-mem 100KiB"), 3);
    CHECK_CONTAINS(out, "of host memory would do\n  raise both");
    CHECK_I64(sluice("plan " JOB "--device-mem 100KiB"), 3);
    CHECK_CONTAINS(out, "does not fit");
    CHECK_CONTAINS(out, "raise --device-mem");
    CHECK_STR(err, "");
    CHECK_I64(sluice("plan " JOB "--device-mem 100KiB --json"), 3);
    const sl_json *prediction = last_line();
    CHECK(!sl_json_get(prediction, "feasible")->boolean);
    CHECK(sl_json_get(prediction, "min_device_bytes")->integer > 100 * 1024);
    /* What the page names, rounded as it is, is enough. */
    char args[256], *least;
    sluice("plan " JOB "--device-mem 100KiB");
    REQUIRE((least = strstr(out, "as given ")) != NULL);
    least += strlen("as given ");
    least[strcspn(least, "(")] = 0;
    snprintf(args, sizeof args, "plan " JOB "--device-mem '%s'", least);
    CHECK_I64(sluice(args), 0);
    CHECK_I64(sluice("plan --model llama3-1.5b --seqlen 2048 --hw h100 --precision bf16 --device-mem 16GiB"), 0);
    for (const char *line = out; *line; line += strcspn(line, "\n") + 1)
        CHECK_MSG(strcspn(line, "\n") <= 100, "a line of %zu columns: %s", strcspn(line, "\n"), line);
}

/* ---- the run's folder ---- */

static bool exists(const char *name)
{
    return access(test_path(name), F_OK) == 0;
}

TEST(folders)
{
    refused(1, TRAIN "--out /proc/nowhere", "cannot create the folder /proc/nowhere");
    refused(1, TRAIN "--out text.txt", "text.txt");
    CHECK_I64(sluice(TRAIN "--steps 2 --out run --resume"), 0); /* nothing to resume: from the beginning */
    CHECK_CONTAINS(out, "no checkpoint in run yet");
    CHECK_CONTAINS(out, "run/checkpoints/step-00000002 (go on with --resume; Hugging Face reads it too)\n");
    refused(2, TRAIN "--steps 2 --out run", "run holds a run that has reached step 2: give --resume");
    struct stat before, after;
    REQUIRE(stat(test_path("run/events.jsonl"), &before) == 0);
    CHECK_I64(sluice(TRAIN "--steps 2 --out run --resume --json"), 0);
    CHECK_CONTAINS(out, "nothing to do");
    REQUIRE(stat(test_path("run/events.jsonl"), &after) == 0); /* what the run measured stays the log's last word */
    CHECK_I64(after.st_size, before.st_size);
    refused(2, TRAIN "--steps 4 --out run --resume --seqlen 16", "sequence length 32, but this one has 16");
    CHECK_I64(sluice(TRAIN "--steps 3 --out run --resume --device-mem 1500KiB"), 0);
    CHECK_CONTAINS(out, "after step 2");
    /* Damage the newest: the one before is taken, with a warning. Damage both: none is left. */
    REQUIRE(truncate(test_path("run/checkpoints/step-00000003/optimizer.safetensors"), 3000) == 0);
    CHECK_I64(sluice(TRAIN "--steps 2 --out run --resume"), 0);
    CHECK_CONTAINS(err, "warning: checkpoint run/checkpoints/step-00000003 is damaged");
    write_text("run/checkpoints/step-00000002/state.json", "{}");
    CHECK_I64(sluice(TRAIN "--steps 3 --out run --resume"), 1);
    CHECK_CONTAINS(err, "none is intact");
    CHECK_CONTAINS(err, "another --out");
}

/* No space: one sentence, and nothing half-written with a final name. */
TEST(full_disk)
{
    for (int k = 1; k <= 12; k += 2) {
        char fault[64], folder[64], args[256];
        snprintf(fault, sizeof fault, "SLUICE_FAULT=write:%d", k);
        snprintf(folder, sizeof folder, "full%d/checkpoints/step-00000002", k);
        snprintf(args, sizeof args, TRAIN "--steps 2 --out full%d", k);
        int code = sluice_with(fault, args);
        if (code != 0)
            check_refused(code, 1, args, "no space left");
        snprintf(args, sizeof args, TRAIN "--steps 2 --out full%d --resume --json", k);
        if (exists(folder))
            CHECK_I64(sluice(args), 0);
    }
    check_refused(sluice_with("ulimit -f 200;", TRAIN "--steps 2 --out limited"), 1, "train", "ulimit -f");
    CHECK(!exists("limited/checkpoints/step-00000002"));
    check_refused(sluice_with("SLUICE_FAULT=write:1", "init --model byte-test --out full"), 1, "init", "no space left");
    CHECK(!exists("full/config.json"));
    check_refused(sluice_with("SLUICE_FAULT=write:2", "init --model byte-test --out full --weights --force"), 1, "init",
                  "no space left");
    CHECK(!exists("full/model.safetensors"));
    check_refused(sluice_with("SLUICE_FAULT=nonsense", "models"), 2, "models", "SLUICE_FAULT");
}

/* ---- signals ---- */

/* Its stdout goes to signal.log, its stderr to `errors` or there too. */
static pid_t start_with(char *const *args, const char *errors)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        int log = chdir(test_dir()) == 0 ? open("signal.log", O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
        int other = errors ? open(errors, O_WRONLY) : log;
        if (log < 0 || dup2(log, 1) < 0 || dup2(other, 2) < 0)
            _exit(126);
        execv(SL_BINARY, args);
        _exit(127);
    }
    return child;
}

static pid_t start(char *const *args)
{
    return start_with(args, NULL);
}

static void wait_for(const char *text)
{
    double start_s = sl_clock_s();
    do {
        usleep(10000);
        if (access(test_path("signal.log"), R_OK) == 0)
            read_text(test_path("signal.log"), out, sizeof out);
    } while (!strstr(out, text) && sl_clock_s() - start_s < 60);
    CHECK_CONTAINS(out, text);
}

/* Processor time that a process and its threads have had so far. */
static double processor_s(pid_t child)
{
    char path[64], text[1024];
    unsigned long user = 0, system_ = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int) child);
    read_text(path, text, sizeof text);
    const char *fields = strrchr(text, ')'); /* behind the name; the 14th and the 15th of all */
    REQUIRE(fields && sscanf(fields, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system_) == 2);
    return (double) (user + system_) / (double) sysconf(_SC_CLK_TCK);
}

/* Until the run has worked for a while behind its last line: it is in the middle of a step. */
static void wait_for_work(pid_t child)
{
    double begin = processor_s(child), start_s = sl_clock_s();
    while (processor_s(child) < begin + 0.2 && sl_clock_s() - start_s < 60)
        usleep(10000);
}

static int finish(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        REQUIRE(errno == EINTR);
    read_text(test_path("signal.log"), out, sizeof out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *const endless[] = {(char[]){"sluice"}, (char[]){"train"}, (char[]){"--config"}, (char[]){"endless.conf"},
                                NULL};

TEST(one_signal)
{
    write_text("endless.conf",
               "model = byte-test\nseqlen = 32\ntokens-per-step = 64\ndata = text.txt\ncosts = roofline\n"
               "steps = 1000000\nout = stopped\n");
    out[0] = 0;
    pid_t child = start(endless);
    wait_for("step       1/");
    refused(2, TRAIN "--steps 2 --out stopped --resume", "another run is writing to stopped");
    kill(child, SIGTERM);
    CHECK_I64(finish(child), 0);
    CHECK_CONTAINS(out, "finishing the step and writing a checkpoint");
    CHECK_CONTAINS(out, "stopped on request after step");
    CHECK_CONTAINS(out, "stopped/checkpoints/step-");
    CHECK_I64(sluice(TRAIN "--steps 1000000 --device-mem 100KiB --out stopped --resume"), 3);
}

/* A signal counts where nobody can be told of it. */
TEST(deaf_signal)
{
    write_text("endless.conf",
               "model = byte-test\nseqlen = 32\ntokens-per-step = 64\ndata = text.txt\ncosts = roofline\n"
               "steps = 1000000\nout = deaf\n");
    write_text("signal.log", "");
    out[0] = 0;
    pid_t child = start_with(endless, "/dev/full");
    wait_for("step       1/");
    kill(child, SIGTERM);
    CHECK_I64(finish(child), 0);
    CHECK_CONTAINS(out, "stopped on request after step");
    CHECK_CONTAINS(out, "deaf/checkpoints/step-");
}

/* Who wants no checkpoints is promised none. */
TEST(signal_without_checkpoints)
{
    write_text("endless.conf",
               "model = byte-test\nseqlen = 32\ntokens-per-step = 64\ndata = text.txt\ncosts = roofline\n"
               "steps = 1000000\nout = bare\ncheckpoint-every = -1\n");
    write_text("signal.log", "");
    out[0] = 0;
    pid_t child = start(endless);
    wait_for("step       1/");
    kill(child, SIGTERM);
    CHECK_I64(finish(child), 0);
    CHECK_CONTAINS(out, "finishing the step; once more");
    CHECK_CONTAINS(out, "--checkpoint-every -1 writes no checkpoint");
    CHECK(!strstr(out, "--resume"));
    CHECK(!strstr(out, "bare/checkpoints/step-"));
    CHECK_I64(sluice(TRAIN "--steps 2 --checkpoint-every -1"), 0); /* nor does it need a folder */
}

/* A step of many seconds of processor time: the second signal does not wait for its end. */
TEST(two_signals)
{
    write_text("endless.conf",
               "model = byte-small\nseqlen = 256\ntokens-per-step = 65536\ndata = text.txt\ncosts = roofline\n"
               "steps = 10\nout = left\n");
    write_text("signal.log", "");
    out[0] = 0;
    pid_t child = start(endless);
    wait_for("plan ");
    wait_for_work(child);
    kill(child, SIGINT);
    wait_for("once more to leave at once");
    kill(child, SIGINT);
    CHECK_I64(finish(child), 128 + SIGINT);
    CHECK(!exists("left/checkpoints/step-00000001"));
}

/* What is wrong with a file is told with its place. */
TEST(report)
{
    CHECK_I64(sluice(TRAIN "--steps 3 --out shown --quiet"), 0);
    CHECK_I64(sluice("report shown --quiet --trace=t.json --csv s.csv"), 0);
    CHECK_STR(out, "page    shown/report.html\ntrace   t.json (open it at https://ui.perfetto.dev)\ncsv     s.csv\n");
    CHECK_I64(sluice("report shown/events.jsonl"), 0);
    CHECK_CONTAINS(out, "Limited by ");
    CHECK_CONTAINS(out, "page    shown/report.html\n");
    CHECK(!strstr(out, "█")); /* not a terminal */
    refused(2, "report", "needs a file");
    refused(2, "report shown shown --trace t.json", "one run");
    refused(2, "report shown shown --csv t.csv", "one file");
    refused(2, "report shown --such", "unknown option --such");
    refused(1, "report no-such-file", "no-such-file");
    refused(1, "report .", "events.jsonl");
    write_text("odd.jsonl", "{\"event\":\"run\"}\n{\"event\":\"step\",\"loss\":[]}\n");
    refused(1, "report odd.jsonl", "odd.jsonl:2:24: \"loss\" must be a number");
    write_text("one.jsonl", "{\"event\":\"run\"}\n");
    refused(2, "report one.jsonl --trace t.json", "no timeline");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    static char text[20000];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "the quick brown fox jumps over the lazy dog\n"[(i * i / 7 + i) % 44];
    write_text("text.txt", text);
    setenv("XDG_CACHE_HOME", test_path("cache"), 1);
    RUN(help);
    RUN(report);
    RUN(usage);
    RUN(threads);
    RUN(option_files);
    RUN(models);
    RUN(initial_weights);
    RUN(data);
    RUN(data_that_does_not_match);
    RUN(data_lines);
    RUN(dry_run);
    RUN(progress);
    RUN(figures);
    RUN(budgets);
    RUN(folders);
    RUN(full_disk);
    RUN(one_signal);
    RUN(deaf_signal);
    RUN(signal_without_checkpoints);
    RUN(two_signals);
    return test_end();
}
