/*
 * `sluice train`: runs a job and shows it: the plan, a progress line (redrawn on a terminal, plain lines elsewhere), what was
 * predicted against what was measured, and where the run's files are.
 *
 * The first SIGINT or SIGTERM asks the trainer to finish its step and write a checkpoint; the second leaves at once, which
 * costs nothing durable: a checkpoint takes its name only when it is whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/clock.h"
#include "core/file.h"
#include "data/token_cache.h"
#include "train/trainer.h"

static const char usage[] = "usage: sluice train --model M --data D --seqlen S --steps N\n"
                            "                    [--tokens-per-step T] [--device-mem BYTES|PERCENT]\n"
                            "                    [--host-mem BYTES|PERCENT] [--out DIR] [--resume] [--json]\n"
                            "                    ...\n"
                            "\n"
                            "Trains a model under hard memory budgets. Placement never changes bits: any\n"
                            "budget gives the same losses and weights. A run that is killed at any moment\n"
                            "continues with --resume, under the same or another budget, to the same bits.\n"
                            "Every option can stand in a config file (--config FILE: a JSON object, or lines\n"
                            "of `key = value`) and in the environment (SLUICE_DEVICE_MEM=2GiB); the command\n"
                            "line wins over the file, the file over the environment.\n"
                            "Exit codes: 0 done, 1 failure, 2 wrong usage, 3 does not fit.";

static sl_trainer *volatile running;
static volatile sig_atomic_t signals, saves; /* saves: a stop writes a checkpoint */

/* The stop comes first: it must not depend on whether the message can be written. */
static void on_signal(int number)
{
    int before = errno;
    if (signals++ > 0)
        _exit(128 + number);
    if (running)
        sl_trainer_request_stop(running);
    static const char with[] = "\nsluice: finishing the step and writing a checkpoint; once more to leave at once\n";
    static const char without[] = "\nsluice: finishing the step; once more to leave at once\n";
    ssize_t wrote = write(STDERR_FILENO, saves ? with : without, (saves ? sizeof with : sizeof without) - 1);
    (void) wrote;
    errno = before;
}

static void print_contents(const char *name, const sl_corpus_contents *contents, int64_t sequences, int64_t seqlen)
{
    char a[32], b[32], c[32], d[32], skipped[256], made[1024];
    int64_t files = sl_corpus_file_count(contents);
    printf("%-7s %s: %s file%s, %s tokens, %s sequence%s of %s\n", name, sl_corpus_kind(contents),
           sl_format_count(files, a), sl_cli_plural(files), sl_format_count(contents->tokens, b),
           sl_format_count(sequences, c), sl_cli_plural(sequences), sl_format_count(seqlen, d));
    sl_corpus_skipped_text(contents, skipped, sizeof skipped);
    if (skipped[0])
        printf("        skipped: %s\n", skipped);
    sl_corpus_made_text(contents, made, sizeof made);
    if (made[0])
        printf("        %s\n        %s by %s, %s %s\n", made, contents->packing ? "packed best-fit, tokens" : "tokens",
               contents->encoding, contents->cache->reused ? "from the cache" : "now in", contents->cache->folder);
}

static void print_data(const sl_trainer_view *v)
{
    char a[32], b[32], c[32], d[32];
    int64_t seqlen = v->setup->program.chunking.seqlen;
    print_contents("data", v->data, v->sequences, seqlen);
    printf("        a step takes %s tokens in %s chunk%s of %s; %s step%s: %.3g epoch%s\n",
           sl_format_count(v->tokens, a), sl_format_count(v->chunks, b), sl_cli_plural(v->chunks),
           sl_format_count(v->chunk_tokens, c), sl_format_count(v->steps, d), sl_cli_plural(v->steps), v->epochs,
           v->epochs == 1 ? "" : "s");
    if (v->val_data)
        print_contents("val", v->val_data, v->val_sequences, seqlen);
    else if (v->val_sequences)
        printf("val     the last %s sequence%s of the data, held out of training\n",
               sl_format_count(v->val_sequences, a), sl_cli_plural(v->val_sequences));
}

static void print_plan(const sl_trainer_view *v)
{
    char a[32], b[SL_CLI_BUDGET], c[32], d[SL_CLI_BUDGET];
    const sl_summary *p = &v->predicted;
    printf("model   %s: %s parameters", v->setup->model.name, sl_format_count(v->parameters, a));
    if (v->trained != v->parameters)
        printf(v->setup->model.lora.rank ? "; trained are adapters with %s" : "; %s of them are trained",
               sl_format_count(v->trained, a));
    printf("\n");
    printf("weights %s\n", v->weights);
    print_data(v);
    printf("device  %s; costs: %s\n", v->numerics, v->costs);
    printf("plan    device memory %s of %s, host memory %s of %s\n", sl_format_bytes(p->peak_bytes[SL_TIER_DEVICE], a),
           sl_cli_budget(v->budget_bytes[SL_TIER_DEVICE], v->unlimited_bytes[SL_TIER_DEVICE], b),
           sl_format_bytes(p->peak_bytes[SL_TIER_HOST], c),
           sl_cli_budget(v->budget_bytes[SL_TIER_HOST], v->unlimited_bytes[SL_TIER_HOST], d));
    printf("        %s in and %s out a step, %.1f %% of the arithmetic recomputed\n",
           sl_format_bytes((size_t) p->link_bytes[SL_LINK_IN], a),
           sl_format_bytes((size_t) p->link_bytes[SL_LINK_OUT], b), 100 * p->recompute_fraction);
    printf("        limited by %s\n", sl_cli_limit(v->limit));
    printf("        predicted: %s a step, %s tok/s (planned in %s)\n", sl_format_seconds(p->step_s, a),
           sl_cli_speed(p->tokens_per_s, b), sl_format_seconds(v->plan_s, c));
    if (v->first_step > 0)
        printf("resume  after step %lld, from %s\n", (long long) v->first_step, v->checkpoint);
    else if (v->setup->resume)
        printf("resume  there is no checkpoint in %s yet: from the beginning\n", v->out);
    fflush(stdout);
}

/* What the command line remembers of a run from step to step. */
typedef struct run_state {
    bool quiet;
    double first_loss, last_loss;
    double began, last_line;    /* when */
    int64_t validated, sampled; /* after which steps */
} run_state;

/* On a terminal one line redrawn in place; and, everywhere, plain lines that stay: about twenty a run, at least one a minute, and
 * always the first and the last. */
static void print_progress(const sl_trainer_view *v, const sl_step_result *r, run_state *state)
{
    double now = sl_clock_s();
    int64_t every = SL_MAX(v->steps / 20, 1);
    bool stays = r->step % every == 0 || r->step == v->first_step + 1 || r->done || now - state->last_line >= 60;
    if (state->quiet || (!stays && !sl_cli_is_terminal()))
        return;
    char line[SL_CLI_LINE];
    const sl_cli_progress progress = {
        .step = r->step,
        .steps = v->steps,
        .loss = r->loss,
        .learning_rate = r->learning_rate,
        .tokens_per_s = r->tokens_per_s,
        .mfu = v->measured.mfu,
        .seconds_left = v->seconds_left,
        .device_bytes = v->measured.peak_bytes[SL_TIER_DEVICE],
        .skipped = r->skipped,
    };
    sl_cli_progress_line(&progress, sl_cli_width(), line);
    if (stays) {
        sl_cli_status_clear();
        printf("%s\n", line);
        fflush(stdout);
        state->last_line = now;
    } else
        sl_cli_status_line(line);
}

static void print_pair(const char *name, const char *predicted, const char *measured)
{
    printf("\n%-14s %14s %14s", name, predicted, measured);
}

static void print_end(const sl_trainer *trainer, const sl_trainer_view *v, const run_state *state)
{
    char a[32], b[32], c[32];
    const sl_summary *p = &v->predicted, *m = &v->measured;
    int64_t steps = v->step - v->first_step;
    printf("%sloss %.4f at step %lld", state->quiet ? "" : "\n", state->first_loss, (long long) v->first_step + 1);
    if (steps > 1)
        printf(", %.4f at step %lld", state->last_loss, (long long) v->step);
    printf("; %s for %lld step%s\n", sl_format_seconds(sl_clock_s() - state->began, a), (long long) steps,
           sl_cli_plural(steps));
    print_pair("", "predicted", "measured");
    print_pair("step", sl_format_seconds(p->step_s, a), sl_format_seconds(m->step_s, b));
    printf(" (%+.1f %%%s)", 100 * (m->step_s / p->step_s - 1), steps > 1 ? "" : ": a first step is slow");
    print_pair("tokens/s", sl_cli_speed(p->tokens_per_s, a), sl_cli_speed(m->tokens_per_s, b));
    snprintf(a, sizeof a, "%.1f %%", 100 * p->mfu);
    snprintf(b, sizeof b, "%.1f %%", 100 * m->mfu);
    print_pair("MFU", a, b);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        print_pair(tier == SL_TIER_DEVICE ? "device memory" : "host memory", sl_format_bytes(p->peak_bytes[tier], a),
                   sl_format_bytes(m->peak_bytes[tier], b));
        if (v->budget_bytes[tier] != SIZE_MAX)
            printf(" (budget %s)", sl_format_bytes(v->budget_bytes[tier], c));
    }
    print_pair("the process", "", sl_format_bytes(sl_trainer_process_bytes(trainer), a));
    printf(" (code, libraries, stacks: beside the budgets)\n");
    if (v->out)
        printf("\nfiles   %s/events.jsonl\n", v->out);
    if (v->checkpoint)
        printf("        %s (go on with --resume; Hugging Face reads it too)\n", v->checkpoint);
    fflush(stdout);
}

/* What the last step was followed by. */
static void print_events(const sl_trainer_view *v, const run_state *state)
{
    char line[SL_CLI_LINE];
    if (state->quiet || (v->val_step == state->validated && v->sample_step == state->sampled))
        return;
    sl_cli_status_clear();
    if (v->val_step != state->validated)
        printf("     validation loss %.4f after step %lld\n", v->val_loss, (long long) v->val_step);
    if (v->sample_step != state->sampled) {
        sl_cli_sample_line(v->sample_step, v->setup->sample_prompt, v->sample, sl_cli_width(), line);
        printf("%s\n", line);
    }
    fflush(stdout);
}

static sl_status run(sl_trainer *trainer, bool quiet)
{
    sl_trainer_view view;
    sl_trainer_look(trainer, &view);
    if (!quiet)
        print_plan(&view);
    if (view.step >= view.steps) {
        printf("nothing to do: step %lld of %lld is done; raise --steps to go on\n", (long long) view.step,
               (long long) view.steps);
        return SL_OK;
    }
    run_state state = {.quiet = quiet, .began = sl_clock_s(), .validated = view.val_step, .sampled = view.sample_step};
    sl_step_result result = SL_SIZED(sl_step_result);
    while (!result.done) {
        sl_status status = sl_trainer_step(trainer, &result);
        sl_trainer_look(trainer, &view);
        if (status == SL_E_INTERRUPTED) /* asked between two steps */
            break;
        SL_TRY(status);
        if (result.step == view.first_step + 1)
            state.first_loss = result.loss;
        state.last_loss = result.loss;
        print_progress(&view, &result, &state);
        print_events(&view, &state);
        state.validated = view.val_step;
        state.sampled = view.sample_step;
    }
    if (view.step > view.first_step)
        print_end(trainer, &view, &state);
    if (view.interrupted)
        printf("stopped on request after step %lld; %s\n", (long long) view.step,
               !view.out                          ? "without --out no checkpoint is written"
               : view.setup->checkpoint_every < 0 ? "--checkpoint-every -1 writes no checkpoint"
                                                  : "go on with --resume");
    return SL_OK;
}

/* Two runs in one folder would mix their logs and remove each other's checkpoints, so a run makes its folder, if it is not there yet,
 * and holds it, first of all. */
static sl_status hold_folder(const char *out, int *fd, bool *made)
{
    bool there = access(out, F_OK) == 0;
    SL_TRY(sl_dir_create(out));
    *fd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0 && !sl_cli_lock(*fd, 0))
        return sl_fail(SL_E_USAGE, "another run is writing to %s: wait for its end, or give another --out", out);
    *made = !there;
    return SL_OK;
}

static void catch_signals(sl_trainer *trainer)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sl_trainer_view view;
    sl_trainer_look(trainer, &view);
    saves = view.out && view.setup->checkpoint_every >= 0;
    running = trainer;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int train(const sl_job *job)
{
    sl_trainer *trainer = NULL;
    const char *out = NULL, *json;
    int folder = -1;
    bool made = false;
    sl_status status = SL_OK;
    if (sl_options_flag(job->options, "dry-run")) {
        status = sl_trainer_check(job);
        return status == SL_OK ? sl_cli_show_plan(job) : sl_cli_fail(status);
    }
    if (sl_options_is_set(job->options, "out")) {
        out = sl_options_string(job->options, "out");
        status = hold_folder(out, &folder, &made);
    }
    if (status == SL_OK) {
        sl_cli_status_line("measuring and planning ...");
        status = sl_trainer_create(job, &trainer);
        sl_cli_status_clear();
    }
    if (status == SL_OK) {
        catch_signals(trainer);
        status = run(trainer, sl_options_flag(job->options, "quiet"));
    }
    if (status == SL_OK && sl_options_flag(job->options, "json")) {
        status = sl_trainer_report(trainer, &json);
        if (status == SL_OK)
            printf("%s\n", json);
    }
    int code = status == SL_OK ? 0 : sl_cli_fail(status);
    running = NULL;
    sl_trainer_destroy(trainer);
    if (code != 0 && made)
        rmdir(out); /* where nothing came of it: a folder with anything in it stays */
    if (folder >= 0)
        close(folder);
    return code;
}

const sl_cli_command sl_cli_train = {.usage = usage, .options = sl_job_table, .run_job = train};
