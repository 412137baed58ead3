/* Runs by the command line: budgets, the keys of --json, the run's folder, a full disk, signals. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "run_cli.h"

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

/* ---- texts ---- */

TEST(samples)
{
    CHECK_I64(sluice(TRAIN "--steps 3 --sample-every 2 --sample-prompt 'the hill'"), 0);
    CHECK_CONTAINS(out, "     after step 2: \"the hill\"");
    CHECK_CONTAINS(out, "     after step 3: \"the hill\"");
    for (const char *line = out; *line; line += strcspn(line, "\n") + 1) /* whatever bytes it writes */
        for (size_t i = 0; line[i] && line[i] != '\n'; i++)
            CHECK_MSG((unsigned char) line[i] >= ' ' && line[i] != 0x7f, "byte %d in %.120s", line[i], line);
    CHECK_I64(sluice(TRAIN "--steps 2 --sample-every 1 --quiet"), 0);
    CHECK(!strstr(out, "after step 1:"));
    refused(2, TRAIN "--steps 1 --sample-prompt x", "no effect without --sample-every");
}

/* A turn per line; empty ones are none. */
TEST(conversation)
{
    static const char chat[] = "generate --model '" SL_SOURCE_DIR "/tests/golden/folder' --chat --temperature 0 "
                               "--ignore-end --max-tokens 6 --costs roofline --device cpu ";
    char args[1000];
    int lines = 0;
    snprintf(args, sizeof args, "%s", chat);
    CHECK_I64(sluice_with("printf 'one\\n\\r\\n\\ntwo <b>' |", args), 0);
    for (const char *c = out; *c; c++)
        lines += *c == '\n';
    CHECK_I64(lines, 2);
    CHECK_STR(err, "");
    char first[200];
    snprintf(first, sizeof first, "%.*s", (int) strcspn(out, "\n"), out);
    snprintf(args, sizeof args, "%s --prompt one --json", chat);
    CHECK_I64(sluice(args), 0);
    CHECK_STR(sl_json_get(last_line(), "text")->string, first);
    snprintf(args, sizeof args, "%s --json", chat);
    refused(2, args, "give --prompt with --chat");
    snprintf(args, sizeof args, "%s --context 8", chat);
    CHECK_I64(sluice_with("echo ABCDEFGHIJKLMNOP |", args), 2);
    CHECK_CONTAINS(err, "give a larger --context");
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

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    cli_begin();
    RUN(dry_run);
    RUN(progress);
    RUN(samples);
    RUN(conversation);
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
