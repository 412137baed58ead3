/* `sluice plan`: the answer before the run. Prints a short page for people, or with --json one object. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "train/forecast.h"

static const char usage[] =
    "usage: sluice plan --model M --seqlen S [--tokens-per-step T] [--device-mem BYTES] [--host-mem BYTES] [--hw NAME|FILE] [--json]\n\n"
    "Says whether a training job fits two memory budgets, how fast it will be and what limits it, without running it and\n"
    "without the accelerator: --hw h200 plans for a machine elsewhere. Takes the options of `sluice train`.\n"
    "Exit code 0: it fits; 3: it does not, and the smallest budgets that would work are named.";

static void print_tier(const char *name, size_t peak, size_t budget, size_t least)
{
    char a[32], b[32], c[32];
    printf("  %-8s %10s of %-10s (least that works: %s)\n", name, sl_format_bytes(peak, a),
           budget == SIZE_MAX ? "unlimited" : sl_format_bytes(budget, b), least ? sl_format_bytes(least, c) : "none");
}

static void print_page(const sl_forecast_view *f)
{
    char a[32], b[32], c[32];
    printf("%s: %s parameters, %s; %lld sequences of %s tokens a step, chunks of %s\n", f->model->name,
           sl_format_count(f->parameters, a), f->precision, (long long) f->sequences, sl_format_count(f->seqlen, b),
           sl_format_count(f->chunk_tokens, c));
    if (!f->feasible) {
        printf("does not fit: %s\n", f->why_not ? f->why_not : "");
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            if (f->min_bytes[tier])
                printf("  least %s memory with the other budget as given: %s\n", tier == SL_TIER_DEVICE ? "device" : "host",
                       sl_format_bytes(f->min_bytes[tier], a));
        return;
    }
    const sl_summary *p = &f->predicted;
    printf("fits: %lld round%s of %lld chunk%s, %s tasks, planned in %.0f ms (costs: %s)\n", (long long) f->rounds,
           f->rounds == 1 ? "" : "s", (long long) f->chunks_per_round, f->chunks_per_round == 1 ? "" : "s",
           sl_format_count(f->tasks, a), f->plan_ms, f->costs);
    print_tier("device", p->peak_bytes[SL_TIER_DEVICE], f->budget_bytes[SL_TIER_DEVICE], f->min_bytes[SL_TIER_DEVICE]);
    print_tier("host", p->peak_bytes[SL_TIER_HOST], f->budget_bytes[SL_TIER_HOST], f->min_bytes[SL_TIER_HOST]);
    printf("  step     %10s, no plan can be under %s (%.1f %% above)\n", sl_format_seconds(p->step_s, a),
           sl_format_seconds(f->lower_bound_s, b), 100 * (p->step_s / f->lower_bound_s - 1));
    printf("  speed    %10s tok/s, %.1f TFLOP/s, MFU %.1f %%, HFU %.1f %%\n", sl_format_count((int64_t) p->tokens_per_s, a),
           p->tflops, 100 * p->mfu, 100 * p->hfu);
    printf("  traffic  %10s in, %s out a step; %.1f %% of the arithmetic recomputed\n",
           sl_format_bytes((size_t) p->h2d_bytes, a), sl_format_bytes((size_t) p->d2h_bytes, b), 100 * p->recompute_fraction);
    printf("  limited by %s\n", f->limit);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (f->gib_more[tier] > 0)
            printf("  one GiB more of %s memory would bring %+.1f %%\n", tier == SL_TIER_DEVICE ? "device" : "host",
                   100 * (f->gib_more[tier] - 1));
}

int sl_cli_plan(int argc, char **argv)
{
    int64_t count;
    const sl_option *table = sl_job_table(&count);
    if (sl_cli_help(table, count, usage, argc, argv))
        return 0;
    sl_job *job = NULL;
    sl_forecast *forecast = NULL;
    int code = 0;
    sl_status status = sl_job_create(&job);
    if (status == SL_OK)
        status = sl_job_parse(job, argc, argv);
    if (status == SL_OK)
        status = sl_forecast_create(job, &forecast);
    if (status == SL_OK) {
        sl_forecast_view view;
        sl_forecast_look(forecast, &view);
        if (sl_options_flag(job->options, "json"))
            printf("%s\n", sl_forecast_json(forecast));
        else
            print_page(&view);
        code = view.feasible ? 0 : 3;
    } else
        code = sl_cli_fail(status);
    sl_forecast_destroy(forecast);
    sl_job_destroy(job);
    return code;
}
