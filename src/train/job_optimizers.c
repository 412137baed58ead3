/*
 * The options of the optimizers, as their descriptors list them. Optimizers share options by name: --beta1 is that of all that have one.
 * Each keeps its own default, so an option that is not given has no value here, and its help tells the defaults.
 */
#include <stdio.h>
#include <string.h>

#include "train/job.h"

static struct {
    char names[128], help[512];
    char defaults[SL_OPTIMIZER_COUNT * SL_MAX_OPTIMIZER_OPTIONS][256];
} texts;

void sl_job_describe_optimizers(sl_option *option)
{
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        size_t names = strlen(texts.names), help = strlen(texts.help);
        bool last = i == SL_OPTIMIZER_COUNT - 1;
        snprintf(texts.names + names, sizeof texts.names - names, "%s%s", i ? "|" : "", def->name);
        snprintf(texts.help + help, sizeof texts.help - help, "%s%s%s",
                 i == 0 ? ""
                 : last ? ", or "
                        : ", ",
                 def->help, last ? "." : "");
    }
    option->value = texts.names;
    option->help = texts.help;
}

/* The option's help, with the defaults where they differ. */
static const char *help_of(const sl_optimizer_option *option, int slot, const char **otherwise)
{
    char *text = texts.defaults[slot];
    const size_t size = sizeof texts.defaults[slot];
    int n = snprintf(text, size, "%s Default:", option->help);
    *otherwise = option->value;
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const int at = sl_optimizer_option_index((sl_optimizer) i, option->name);
        if (at < 0)
            continue;
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        if (strcmp(def->options[at].value, option->value) != 0)
            *otherwise = NULL;
        n += snprintf(text + n, size - (size_t) n, " %s (%s)", def->options[at].value, def->name);
    }
    return *otherwise ? option->help : text;
}

int64_t sl_job_list_optimizer_options(sl_option *table, int64_t count)
{
    const int64_t first = count;
    for (int k = 0; k < SL_OPTIMIZER_COUNT; k++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) k);
        for (int j = 0; j < def->n_options; j++) {
            int64_t known = first;
            while (known < count && strcmp(table[known].name, def->options[j].name) != 0)
                known++;
            if (known < count)
                continue;
            sl_option *option = &table[count++];
            *option = (sl_option){.name = def->options[j].name, .value = "X", .kind = SL_OPT_F64, .group = "Training"};
            option->help = help_of(&def->options[j], (int) (known - first), &option->otherwise);
        }
    }
    return count;
}

sl_status sl_job_resolve_optimizers(const sl_options *o, sl_program_config *config)
{
    sl_optimizer_find(sl_options_string(o, "optimizer"), &config->optimizer);
    config->optimizer_rules = sl_options_string(o, "optimizer-for");
    config->weight_decay = (float) sl_options_f64(o, "weight-decay");
    for (int k = 0; k < SL_OPTIMIZER_COUNT; k++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) k);
        sl_optimizer_defaults((sl_optimizer) k, config->optimizer_options[k]);
        for (int i = 0; i < def->n_options; i++) {
            const sl_optimizer_option *option = &def->options[i];
            if (!sl_options_is_set(o, option->name))
                continue;
            SL_TRY(sl_job_between(o, option->name, option->low, option->high));
            config->optimizer_options[k][i] = (float) sl_options_f64(o, option->name);
        }
    }
    return SL_OK;
}
