/*
 * The options of adapters (LoRA). What an adapter is stands in its folder's adapter_config.json: with --init-adapter the options have
 * their values from there, and those that are given too must agree.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "train/job.h"

static const sl_option table[] = {
    {"lora-rank", "N", SL_OPT_I64, "0", "Training",
     "Train low-rank adapters (LoRA) of this rank beside the model's linear layers instead of the model, which is only "
     "read: 8 to 64 are usual. Checkpoints are then adapter folders as PEFT reads and writes them. 0: train the "
     "model."},
    {"lora-alpha", "ALPHA", SL_OPT_F64, NULL, "Training",
     "Adapters count with the factor ALPHA / rank. Default: twice --lora-rank."},
    {"lora-targets", "NAMES", SL_OPT_STRING, NULL, "Training",
     "Linear layers that get adapters, by the names of Hugging Face's modules: q_proj,v_proj. Default: " SL_LORA_ALL
     ", all but the head."},
    {"lora-dropout", "P", SL_OPT_F64, NULL, "Training",
     "Dropout of what goes into adapters, the same mask for layers that share their input. Default: 0."},
    {"lora-rslora", NULL, SL_OPT_FLAG, "false", "Training",
     "Rank-stabilized adapters: the factor is ALPHA / sqrt(rank), which suits ranks above 64."},
    {"init-adapter", "DIR", SL_OPT_STRING, NULL, "Training",
     "Begin with the adapter in this folder (" SL_LORA_CONFIG " and " SL_LORA_WEIGHTS
     ", of PEFT or of a checkpoint), which says rank, factor and layers too. Default: new adapters, which change "
     "nothing "
     "at first."},
};

int64_t sl_job_list_lora_options(sl_option *whole, int64_t count)
{
    for (int64_t i = 0; i < SL_COUNT(table); i++)
        whole[count++] = table[i];
    return count;
}

static sl_status need_rank(const sl_options *o, const sl_lora *lora)
{
    static const char *const others[] = {"lora-alpha", "lora-targets", "lora-dropout", "lora-rslora"};
    for (int64_t i = 0; i < SL_COUNT(others) && !lora->rank; i++)
        if (sl_options_is_set(o, others[i]))
            return sl_fail(SL_E_USAGE, "--%s has no effect without adapters: give --lora-rank too, or leave it out",
                           others[i]);
    return SL_OK;
}

static sl_status differs(const char *option, const char *folder)
{
    return sl_fail(SL_E_USAGE, "--%s is another than in the " SL_LORA_CONFIG " of --init-adapter %s: leave it out",
                   option, folder);
}

static sl_status read_folder(const sl_options *o, const char *folder, sl_lora *lora)
{
    char path[1200];
    if (snprintf(path, sizeof path, "%s/" SL_LORA_CONFIG, folder) >= (int) sizeof path)
        return sl_fail(SL_E_USAGE, "--init-adapter has a path of %zu bytes: use one of at most 1023", strlen(folder));
    SL_TRY(sl_lora_read_config(path, lora));
    if (sl_options_is_set(o, "lora-rank") && sl_options_i64(o, "lora-rank") != lora->rank)
        return differs("lora-rank", folder);
    if (sl_options_is_set(o, "lora-alpha") && sl_options_f64(o, "lora-alpha") != lora->alpha)
        return differs("lora-alpha", folder);
    if (sl_options_is_set(o, "lora-targets") && strcmp(sl_options_string(o, "lora-targets"), lora->targets) != 0)
        return differs("lora-targets", folder);
    if (sl_options_is_set(o, "lora-rslora") && sl_options_flag(o, "lora-rslora") != lora->rank_stabilized)
        return differs("lora-rslora", folder);
    return SL_OK;
}

static sl_status read_options(const sl_options *o, sl_lora *lora)
{
    const char *targets = sl_options_string(o, "lora-targets");
    lora->rank = sl_options_i64(o, "lora-rank");
    lora->alpha = sl_options_is_set(o, "lora-alpha") ? sl_options_f64(o, "lora-alpha") : 2 * (double) lora->rank;
    lora->rank_stabilized = sl_options_flag(o, "lora-rslora");
    if (snprintf(lora->targets, sizeof lora->targets, "%s", targets ? targets : SL_LORA_ALL) >=
        (int) sizeof lora->targets)
        return sl_fail(SL_E_USAGE, "--lora-targets has %zu bytes: use at most %zu", strlen(targets),
                       sizeof lora->targets - 1);
    if (lora->rank < 0 || lora->rank > SL_LORA_MOST_RANK)
        return sl_fail(SL_E_USAGE, "--lora-rank %" PRId64 " is out of range: give a number from 0 to %d", lora->rank,
                       SL_LORA_MOST_RANK);
    return lora->rank && sl_options_is_set(o, "lora-alpha") ? sl_job_between(o, "lora-alpha", 1e-6, 1e6) : SL_OK;
}

sl_status sl_job_resolve_lora(const sl_options *o, sl_setup *setup)
{
    sl_lora *lora = &setup->model.lora;
    setup->init_adapter = sl_options_string(o, "init-adapter");
    SL_TRY(setup->init_adapter ? read_folder(o, setup->init_adapter, lora) : read_options(o, lora));
    if (sl_options_is_set(o, "lora-dropout")) {
        SL_TRY(sl_job_between(o, "lora-dropout", 0, 0.99));
        lora->dropout = (float) sl_options_f64(o, "lora-dropout");
    }
    return need_rank(o, lora);
}
