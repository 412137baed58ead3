/* `sluice system`: what this machine is, what it can do, and the profile to plan for it from elsewhere. */
#include <stdio.h>
#include <string.h>

#include "bench/system.h"
#include "cli/cli.h"
#include "core/file.h"
#include "core/pool.h"

static const char usage[] = "usage: sluice system [--json] [--out FILE] [--quick] [--probe]\n"
                            "\n"
                            "Describes this machine and measures it: arithmetic per dtype, memory, the link\n"
                            "in both directions, storage, each beside the nominal figure where that is\n"
                            "known; ridge points, and what limits typical operations here. The JSON holds a\n"
                            "hardware profile: `sluice system --out this.json` here, then `sluice plan --hw\n"
                            "this.json ...` anywhere.";

static const sl_option table[] = {
    {"quick", NULL, SL_OPT_FLAG, "false", "Run", "shorter measurements: about a quarter of a minute on two cores"},
    {"probe", NULL, SL_OPT_FLAG, "false", "Run", "describe only, measure nothing (and write no profile)"},
    {"device", "auto|cpu|cuda", SL_OPT_STRING, "auto", "Run",
     "which device to measure; auto takes the best one present"},
    {"threads", "N", SL_OPT_I64, "0", "Run", "CPU threads; 0: one per core"},
    {"disk", "DIR|none", SL_OPT_STRING, ".", "Run", "folder whose storage to measure, by a file that is removed again"},
    {"json", NULL, SL_OPT_FLAG, "false", "Output", "print one JSON object instead of tables"},
    {"out", "FILE", SL_OPT_STRING, NULL, "Output", "write the JSON object to a file as well"},
};

static sl_status run(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    (void) operands, (void) n_operands;
    const char *disk = sl_options_string(options, "disk"), *out = sl_options_string(options, "out");
    const sl_device_class *class;
    sl_results *results = NULL;
    int64_t threads = sl_options_i64(options, "threads");
    SL_TRY(sl_pool_check_threads(threads));
    SL_TRY(sl_device_find(sl_options_string(options, "device"), &class));
    if (strcmp(disk, "none") != 0 && !sl_dir_exists(disk))
        return sl_fail(SL_E_USAGE, "--disk %s is no folder: name one with free space, or give --disk none", disk);
    if (out)
        SL_TRY(sl_cli_check_writable(out));
    sl_system_config config = {
        .device = class->name,
        .threads = (int) threads,
        .quick = sl_options_flag(options, "quick"),
        .probe_only = sl_options_flag(options, "probe"),
        .disk = strcmp(disk, "none") == 0 ? NULL : disk,
        .progress = sl_cli_status_line,
    };
    sl_status status = sl_system_run(&config, &results);
    sl_cli_status_clear();
    SL_TRY(status);
    status = sl_cli_results(results, sl_options_flag(options, "json"), out);
    sl_results_destroy(results);
    return status;
}

const sl_cli_command sl_cli_system = {.usage = usage, .table = table, .count = SL_COUNT(table), .run = run};
