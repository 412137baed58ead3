/* The command line as a user meets it: exit codes, one sentence for every mistake, help that leaves nothing out. Drives the built
 * program; everything happens in the test's own folder. test_cli_runs has budgets, folders and signals. */
#include <sched.h>

#include "train/job.h"

#include "run_cli.h"

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
    static const sl_option merge[] = {{.name = "model"}, {.name = "adapter"}, {.name = "out"}, {.name = "threads"}};
    check_help("merge", merge, SL_COUNT(merge));
    check_help("models", &(sl_option){.name = "json"}, 1);
    static const sl_option report[] = {{.name = "out"}, {.name = "trace"}, {.name = "csv"}, {.name = "quiet"}};
    check_help("report", report, SL_COUNT(report));
    static const sl_option sweep[] = {{.name = "model"},    {.name = "seqlen"},   {.name = "device-mem"},
                                      {.name = "host-mem"}, {.name = "run"},      {.name = "jobs"},
                                      {.name = "out"},      {.name = "csv"},      {.name = "force"},
                                      {.name = "hw"},       {.name = "precision"}};
    check_help("sweep", sweep, SL_COUNT(sweep));
    CHECK_I64(sluice("--help"), 0);
    static const char *const commands[] = {"train", "plan", "init", "merge", "models", "sweep", "report", "version"};
    for (int64_t i = 0; i < SL_COUNT(commands); i++)
        CHECK_CONTAINS(out, commands[i]);
    static const char *const pages[] = {
        "--help",        "train --help",  "plan --help",       "init --help",   "merge --help",
        "models --help", "system --help", "bench --help",      "sweep --help",  "report --help",
        "help --help",   "man --help",    "completion --help", "version --help"};
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
    /* One file serves plan too, which opens no folder, and no data that is elsewhere. */
    CHECK_I64(sluice("plan --config good.conf --data nosuch --init-from nosuch --out text.txt/x --resume"), 0);
    CHECK_CONTAINS(err, "this plan takes sequences as whole");
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
    refused(2, "train " JOB "--cache tokens --data d.jsonl", "d.jsonl holds 4 tokens");
    refused(1, "train " JOB "--cache tokens --data tokenizer.json", "tokenizer.json holds no record that can be used");
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
    cli_begin();
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
    return test_end();
}
