/* How figures are put into words. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

char *sl_cli_speed(double tokens_per_s, char out[32])
{
    if (tokens_per_s >= 10)
        return sl_format_count((int64_t) tokens_per_s, out);
    snprintf(out, 32, "%.2g", tokens_per_s);
    return out;
}

const char *sl_cli_flops(double tflops, char out[32])
{
    if (tflops >= 1)
        snprintf(out, 32, "%.1f TFLOP/s", tflops);
    else
        snprintf(out, 32, "%.3g GFLOP/s", 1e3 * tflops);
    return out;
}

/* From the planner's word for it. */
const char *sl_cli_limit(const char *limit)
{
    static const struct {
        const char *limit, *words;
    } known[] = {
        {"compute", "arithmetic"},
        {"recompute", "recomputing what the device memory cannot keep"},
        {"link in", "copies to the device"},
        {"link out", "copies from the device"},
        {"host compute", "the optimizer beside the host memory"},
        {"device bytes", "the device memory"},
        {"host bytes", "the host memory"},
    };
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        if (limit && strcmp(known[i].limit, limit) == 0)
            return known[i].words;
    return limit ? limit : "nothing";
}

const char *sl_cli_budget(size_t bytes, size_t unlimited, char out[SL_CLI_BUDGET])
{
    char text[32], whole[32];
    if (unlimited)
        snprintf(out, SL_CLI_BUDGET, "%s (%.4g%% of the %s without budgets)", sl_format_bytes(bytes, text),
                 100 * (double) bytes / (double) unlimited, sl_format_bytes(unlimited, whole));
    else
        snprintf(out, SL_CLI_BUDGET, "%s", sl_format_bytes(bytes, text));
    return out;
}

const char *sl_cli_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}
