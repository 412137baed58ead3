/*
 * `sluice train`: runs a job and shows it: the plan, a progress line (redrawn on a terminal, plain lines elsewhere), what was
 * predicted against what was measured, and where the run's files are.
 *
 * The first SIGINT or SIGTERM asks the trainer to finish its step and write a checkpoint; the second leaves at once, which
 * costs nothing durable: a checkpoint takes its name only when it is whole.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/clock.h"
#include "train/trainer.h"

static const char usage[] =
    "usage: sluice train --model M --data D --seqlen S [--tokens-per-step T] --steps N [--device-mem BYTES] [--host-mem BYTES]\n\n"
    "Trains a model under hard memory budgets. Placement never changes bits: any budget gives the same losses and weights.\n"
    "A run that is killed at any moment goes on with --resume, under the same or another budget, to the same bits.\n"
    "Every option can stand in a config file (--config FILE: a JSON object, or lines of `key = value`) and in the environment\n"
    "(SLUICE_DEVICE_MEM=2GiB); the command line wins over the file, the file over the environment.";

static sl_trainer *volatile running;
static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    if (signals++ > 0)
        _exit(128 + number);
    static const char text[] = "\nsluice: finishing the step and writing a checkpoint; once more to leave at once\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        return;
    if (running)
        sl_trainer_request_stop(running);
}

static void print_plan(const sl_trainer_view *v)
{
    char a[32], b[32], c[32], d[32], e[32];
    printf("model   %s: %s parameters, %s tokens a step in %lld chunk%s of %s\n", v->setup->model.name,
           sl_format_count(v->parameters, a), sl_format_count(v->tokens, b), (long long) v->chunks, v->chunks == 1 ? "" : "s",
           sl_format_count(v->chunk_tokens, c));
    printf("device  %s; costs %s\n", v->numerics, v->costs);
    const sl_summary *p = &v->predicted;
    printf("plan    device %s of %s, host %s of %s; %s in and %s out a step; %.1f %% recomputed\n",
           sl_format_bytes(p->peak_bytes[SL_TIER_DEVICE], a),
           v->budget_bytes[SL_TIER_DEVICE] == SIZE_MAX ? "unlimited" : sl_format_bytes(v->budget_bytes[SL_TIER_DEVICE], b),
           sl_format_bytes(p->peak_bytes[SL_TIER_HOST], c),
           v->budget_bytes[SL_TIER_HOST] == SIZE_MAX ? "unlimited" : sl_format_bytes(v->budget_bytes[SL_TIER_HOST], d),
           sl_format_bytes((size_t) p->h2d_bytes, e), sl_format_bytes((size_t) p->d2h_bytes, (char[32]){0}),
           100 * p->recompute_fraction);
    printf("        predicted %s a step, %s tok/s; limited by %s; planned in %s\n", sl_format_seconds(p->step_s, a),
           sl_format_count((int64_t) p->tokens_per_s, b), v->limit, sl_format_seconds(v->plan_s, c));
    if (v->first_step > 0)
        printf("resume  after step %lld\n", (long long) v->first_step);
    fflush(stdout);
}

static void format_left(double seconds, char out[32])
{
    int64_t s = isfinite(seconds) && seconds > 0 ? (int64_t) (seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(out, 32, "%lldh%02lldm", (long long) (s / 3600), (long long) (s / 60 % 60));
    else
        snprintf(out, 32, "%lldm%02llds", (long long) (s / 60), (long long) (s % 60));
}

/* On a terminal one line redrawn in place; otherwise about fifty plain lines a run, and always the first and the last. */
static void print_progress(const sl_trainer_view *v, const sl_step_result *r)
{
    int64_t every = v->steps / 50 > 1 ? v->steps / 50 : 1;
    bool plain = r->step % every == 0 || r->step == v->first_step + 1 || r->done;
    if (!plain && !sl_cli_is_terminal())
        return;
    char line[256], speed[32], left[32], memory[32];
    format_left(v->seconds_left, left);
    snprintf(line, sizeof line, "step %*lld/%lld  loss %7.4f%s  lr %.2e  %s tok/s  MFU %.0f %%  device %s  left %s",
             v->steps >= 1000 ? 5 : 3, (long long) r->step, (long long) v->steps, r->loss, r->skipped ? " (skipped)" : "",
             r->learning_rate, sl_format_count((int64_t) r->tokens_per_s, speed), 100 * v->measured.mfu,
             sl_format_bytes(v->measured.peak_bytes[SL_TIER_DEVICE], memory), left);
    if (plain) {
        sl_cli_status_clear();
        printf("%s\n", line);
        fflush(stdout);
    } else
        sl_cli_status_line(line);
}

static void print_end(const sl_trainer_view *v)
{
    char a[32], b[32];
    const sl_summary *p = &v->predicted, *m = &v->measured;
    printf("\n%-14s %14s %14s\n", "", "predicted", "measured");
    printf("%-14s %14s %14s  (%+.1f %%)\n", "step", sl_format_seconds(p->step_s, a), sl_format_seconds(m->step_s, b),
           100 * (m->step_s / p->step_s - 1));
    printf("%-14s %14s %14s\n", "tokens/s", sl_format_count((int64_t) p->tokens_per_s, a),
           sl_format_count((int64_t) m->tokens_per_s, b));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        char name[32];
        snprintf(name, sizeof name, "%s peak", tier == SL_TIER_DEVICE ? "device" : "host");
        printf("%-14s %14s %14s", name, sl_format_bytes(p->peak_bytes[tier], a), sl_format_bytes(m->peak_bytes[tier], b));
        if (v->budget_bytes[tier] != SIZE_MAX)
            printf("  (budget %s)", sl_format_bytes(v->budget_bytes[tier], a));
        putchar('\n');
    }
    if (v->out)
        printf("\nrun     %s (events.jsonl%s%s)\n", v->out, v->checkpoint ? "; checkpoint " : "",
               v->checkpoint ? v->checkpoint : "");
    fflush(stdout);
}

static sl_status run(sl_trainer *trainer)
{
    sl_trainer_view view;
    sl_trainer_look(trainer, &view);
    print_plan(&view);
    int64_t validated = view.val_step;
    if (view.step >= view.steps) {
        printf("nothing to do: step %lld of %lld is done; raise --steps to go on\n", (long long) view.step,
               (long long) view.steps);
        return SL_OK;
    }
    sl_step_result result = {0};
    while (!result.done) {
        SL_TRY(sl_trainer_step(trainer, &result));
        sl_trainer_look(trainer, &view);
        print_progress(&view, &result);
        if (view.val_step != validated) {
            sl_cli_status_clear();
            printf("     validation after step %lld: loss %.4f\n", (long long) view.val_step, view.val_loss);
            validated = view.val_step;
        }
    }
    print_end(&view);
    if (view.interrupted)
        printf("stopped as asked after step %lld; go on with --resume\n", (long long) view.step);
    return SL_OK;
}

int sl_cli_train(int argc, char **argv)
{
    int64_t count;
    const sl_option *table = sl_job_table(&count);
    if (sl_cli_help(table, count, usage, argc, argv))
        return 0;
    sl_job *job = NULL;
    sl_trainer *trainer = NULL;
    sl_status status = sl_job_create(&job);
    if (status == SL_OK)
        status = sl_job_parse(job, argc, argv);
    if (status == SL_OK) {
        sl_cli_status_line("measuring and planning ...");
        status = sl_trainer_create(job, &trainer);
        sl_cli_status_clear();
    }
    if (status == SL_OK) {
        running = trainer;
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        status = run(trainer);
    }
    const char *json;
    if (status == SL_OK && sl_options_flag(job->options, "json")) {
        status = sl_trainer_report(trainer, &json);
        if (status == SL_OK)
            printf("%s\n", json);
    }
    int code = status == SL_OK ? 0 : sl_cli_fail(status);
    running = NULL;
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    return code;
}
