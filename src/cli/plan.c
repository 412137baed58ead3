/* `sluice plan`: the answer before the run. Prints a short page for people, or with --json one object. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/log.h"
#include "core/memory_limit.h"
#include "train/prediction.h"

static const char usage[] = "usage: sluice plan --model M --seqlen S [--tokens-per-step T] [--hw NAME|FILE]\n"
                            "                   [--device-mem BYTES|PERCENT] [--host-mem BYTES|PERCENT]\n"
                            "                   [--json] ...\n"
                            "\n"
                            "Reports whether a training job fits two memory budgets, how fast it will be and\n"
                            "what limits it, without running it and without the accelerator: --hw h200 plans\n"
                            "for a machine elsewhere. Takes the options of `sluice train`. With --data it\n"
                            "looks at the data as a run does (and tokenizes it, into the same cache), since\n"
                            "packed documents are part of the plan; without it, or where it is not on this\n"
                            "machine, sequences are taken as whole. Options about the run's folder (--out,\n"
                            "--resume, ...) are accepted, so that one --config serves both, but not read;\n"
                            "--val-every counts, since it takes memory.\n"
                            "Exit code 0: it fits; 3: it does not, and the smallest budgets that would work\n"
                            "are named.";

static const char *const tier_names[SL_TIER_COUNT] = {"device", "host"};

/* The least budget that works: as a percentage too, where the budget was given as one. */
static const char *format_least(const sl_prediction_view *f, sl_tier tier, size_t bytes, char out[64])
{
    char text[32];
    if (f->unlimited_bytes[tier])
        snprintf(out, 64, "%s (%.1f%%)", sl_format_bytes_up(bytes, text),
                 sl_percent_up(bytes, f->unlimited_bytes[tier]));
    else
        snprintf(out, 64, "%s", sl_format_bytes_up(bytes, text));
    return out;
}

static void print_tier(sl_tier tier, const sl_prediction_view *f)
{
    char a[32], b[SL_CLI_BUDGET], c[64];
    printf("  %-8s %10s of %s; the least that works is %s with the %s memory as given\n", tier_names[tier],
           sl_format_bytes(f->predicted.peak_bytes[tier], a),
           sl_cli_budget(f->budget_bytes[tier], f->unlimited_bytes[tier], b),
           format_least(f, tier, f->min_bytes[tier], c), tier_names[!tier]);
}

static void print_refusal(const sl_prediction_view *f)
{
    printf("does not fit\n");
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        const char *other = tier_names[!tier];
        char budget[SL_CLI_BUDGET], least[32], needed[128], percent[32] = "";
        if (f->unlimited_bytes[tier])
            snprintf(percent, sizeof percent, ", %.1f%%", sl_percent_up(f->min_bytes[tier], f->unlimited_bytes[tier]));
        if (f->min_bytes[tier])
            snprintf(needed, sizeof needed, "%s (%zu bytes%s) would do", sl_format_bytes_up(f->min_bytes[tier], least),
                     f->min_bytes[tier], percent);
        else
            snprintf(needed, sizeof needed, "no amount would do");
        printf("  %-8s %10s given; with the %s memory as given %s\n", tier_names[tier],
               sl_cli_budget(f->budget_bytes[tier], f->unlimited_bytes[tier], budget), other, needed);
    }
    if (f->both_bytes[SL_TIER_DEVICE]) {
        char least[2][64];
        printf("  together %s of device and %s of host memory would do\n",
               format_least(f, SL_TIER_DEVICE, f->both_bytes[SL_TIER_DEVICE], least[0]),
               format_least(f, SL_TIER_HOST, f->both_bytes[SL_TIER_HOST], least[1]));
    }
    bool device = f->min_bytes[SL_TIER_DEVICE] > 0, host = f->min_bytes[SL_TIER_HOST] > 0;
    printf("  raise %s, or use a smaller --seqlen or --chunk-tokens\n", device && host ? "one of them"
                                                                        : device       ? "--device-mem"
                                                                        : host         ? "--host-mem"
                                                                                       : "both");
}

static void print_page(const sl_prediction_view *f)
{
    char a[32], b[32], c[32], d[32], trained[80] = "";
    if (f->trained != f->parameters)
        snprintf(trained, sizeof trained, f->model->lora.rank ? " and adapters with %s" : ", %s of them trained",
                 sl_format_count(f->trained, a));
    printf("%s: %s parameters%s, %s; %lld sequence%s of %s tokens a step in %lld chunk%s of %s\n", f->model->name,
           sl_format_count(f->parameters, a), trained, f->precision, (long long) f->sequences,
           sl_cli_plural(f->sequences), sl_format_count(f->seqlen, b), (long long) f->chunks, sl_cli_plural(f->chunks),
           sl_format_count(f->chunk_tokens, c));
    if (!f->feasible) {
        print_refusal(f);
        return;
    }
    const sl_summary *p = &f->predicted;
    printf("fits: %lld round%s of %lld chunk%s, %s tasks, planned in %s; costs: %s\n", (long long) f->rounds,
           sl_cli_plural(f->rounds), (long long) f->chunks_per_round, sl_cli_plural(f->chunks_per_round),
           sl_format_count(f->tasks, a), sl_format_seconds(1e-3 * f->plan_ms, b), f->costs);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        print_tier((sl_tier) tier, f);
    printf("  step     %10s; no plan can be under %s (%.1f %% above it)\n", sl_format_seconds(p->step_s, a),
           sl_format_seconds(f->lower_bound_s, b), 100 * (p->step_s / f->lower_bound_s - 1));
    printf("  speed    %10s tok/s, %s, MFU %.1f %%, HFU %.1f %%\n", sl_cli_speed(p->tokens_per_s, a),
           sl_cli_flops(p->tflops, b), 100 * p->mfu, 100 * p->hfu);
    printf("  traffic  %10s in and %s out a step; %.1f %% of the arithmetic recomputed\n",
           sl_format_bytes((size_t) p->link_bytes[SL_LINK_IN], c),
           sl_format_bytes((size_t) p->link_bytes[SL_LINK_OUT], d), 100 * p->recompute_fraction);
    printf("  limited by %s\n", sl_cli_limit(f->limit));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (f->gib_more[tier] > 0)
            printf("  one GiB more of %s memory would bring %+.1f %%\n", tier_names[tier],
                   100 * (f->gib_more[tier] - 1));
}

/* Without budgets a plan is not limited, and where compute shares its cores both memories are this machine's. */
static void compare_with_machine(const sl_prediction_view *f)
{
    char a[32], b[32];
    size_t there = sl_memory_bytes();
    size_t taken = f->predicted.peak_bytes[SL_TIER_DEVICE] + f->predicted.peak_bytes[SL_TIER_HOST];
    if (sl_device_def_find(f->device)->shared_cores && taken > there)
        sl_warn("this machine has %s of memory, and the plan takes %s: give --device-mem and --host-mem",
                sl_format_bytes(there, a), sl_format_bytes(taken, b));
}

int sl_cli_show_plan(const sl_job *job)
{
    sl_prediction *prediction;
    sl_prediction_view view;
    sl_cli_status_line(sl_options_is_set(job->options, "hw")
                           ? "planning ..."
                           : "measuring this machine and planning ... (--hw NAME plans for another, unmeasured)");
    sl_status status = sl_prediction_create(job, &prediction);
    sl_cli_status_clear();
    if (status != SL_OK)
        return sl_cli_fail(status);
    sl_prediction_view_of(prediction, &view);
    if (view.feasible && !sl_options_is_set(job->options, "hw"))
        compare_with_machine(&view);
    if (sl_options_flag(job->options, "json"))
        printf("%s\n", sl_prediction_json(prediction));
    else
        print_page(&view);
    int code = view.feasible ? 0 : 3;
    sl_prediction_destroy(prediction);
    return code;
}

const sl_cli_command sl_cli_plan = {.usage = usage, .options = sl_job_table, .run_job = sl_cli_show_plan};
