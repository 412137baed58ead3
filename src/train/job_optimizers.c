/*
 * The options of the optimizers, as their descriptors list them. Optimizers share options by name: --beta1 is that of all that have one.
 * Each keeps its own default. Where defaults differ, the option has none in the table, and its help lists them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/job.h"

enum { HELP_BYTES = 1024 };

static struct {
    char names[256], help[HELP_BYTES];
    char options[SL_OPTIMIZER_COUNT * SL_MAX_OPTIMIZER_OPTIONS][HELP_BYTES];
} texts;

/* Puts as much as fits behind a text. */
static void append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

void sl_job_describe_optimizers(sl_option *option)
{
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        const bool last = i == SL_OPTIMIZER_COUNT - 1;
        append(texts.names, sizeof texts.names, "%s%s", i ? "|" : "", def->name);
        append(texts.help, sizeof texts.help, "%s%s%s",
               i == 0 ? ""
               : last ? ", or "
                      : ", ",
               def->help, last ? "." : "");
    }
    option->value = texts.names;
    option->help = texts.help;
}

/* The option's help, with the defaults where they differ; `otherwise` is the default that all have, or NULL. */
static const char *help_of(const sl_optimizer_option *option, char text[HELP_BYTES], const char **otherwise)
{
    const char *separator = "Default: ";
    *otherwise = option->value;
    append(text, HELP_BYTES, "%s ", option->help);
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        const int at = sl_optimizer_option_index((sl_optimizer) i, option->name);
        if (at < 0)
            continue;
        if (strcmp(def->options[at].value, option->value) != 0)
            *otherwise = NULL;
        append(text, HELP_BYTES, "%s%s (%s)", separator, def->options[at].value, def->name);
        separator = ", ";
    }
    append(text, HELP_BYTES, ".");
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
            option->help = help_of(&def->options[j], texts.options[known - first], &option->otherwise);
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
