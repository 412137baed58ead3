/* `sluice merge`: a model with an adapter merged into it, as a folder that needs neither. */
#include <stdio.h>

#include "cli/cli.h"
#include "core/pool.h"
#include "train/merge.h"

static const char usage[] = "usage: sluice merge --model DIR --adapter DIR --out DIR [--threads N]\n"
                            "\n"
                            "Adds a low-rank adapter (LoRA) to the model that it belongs to and writes\n"
                            "the result as a complete Hugging Face folder: weights in the model's own dtype,\n"
                            "rounded once, and its config.json and tokenizer files. The adapter is a folder\n"
                            "of PEFT, or a checkpoint of `sluice train --lora-rank`. Takes little memory,\n"
                            "whatever the model's size.";

static const sl_option table[] = {
    {"model", "DIR", SL_OPT_STRING, NULL, "Folders", "config.json and weights, or ORG/NAME"},
    {"adapter", "DIR", SL_OPT_STRING, NULL, "Folders", "the adapter"},
    {"out", "DIR", SL_OPT_STRING, NULL, "Folders", "folder to write, not there yet"},
    {"threads", "N", SL_OPT_I64, "0", "Machine", "CPU threads; 0: one per core"},
};

static sl_status merge(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    (void) operands, (void) n_operands;
    const char *model = sl_options_string(options, "model"), *adapter = sl_options_string(options, "adapter"),
               *out = sl_options_string(options, "out");
    char a[32], b[32];
    sl_merged merged;
    if (!model || !adapter || !out)
        return sl_fail(SL_E_USAGE, "merge needs --model, --adapter and --out, which are all folders");
    SL_TRY(sl_pool_check_threads(sl_options_i64(options, "threads")));
    SL_TRY(sl_merge(model, adapter, out, (int) sl_options_i64(options, "threads"), &merged));
    printf("%s: %s tensors, %s of them merged with adapters of rank %lld, factor %g\n", out,
           sl_format_count(merged.tensors, a), sl_format_count(merged.modules, b), (long long) merged.rank,
           (double) merged.factor);
    return SL_OK;
}

const sl_cli_command sl_cli_merge = {.usage = usage, .table = table, .count = SL_COUNT(table), .run = merge};
