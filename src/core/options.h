/* Option tables: one table gives the flags, --help, the config file, the environment variables (SLUICE_<NAME>) and the
 * docs. Values are kept as text and read through typed getters, whose messages name the option. Unknown keys are errors
 * with the nearest known name suggested. Precedence: command line, then config file, then environment, then default. */
#ifndef SL_CORE_OPTIONS_H
#define SL_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json.h"
#include "core/mem.h"
#include "core/text.h"

typedef enum sl_option_kind {
    SL_OPT_STRING,
    SL_OPT_I64,
    SL_OPT_F64,
    SL_OPT_BYTES,
    SL_OPT_BUDGET, /* bytes, or a percentage of what the job takes without budgets */
    SL_OPT_FLAG,
    SL_OPT_CHOICE
} sl_option_kind;

typedef struct sl_option {
    const char
        *name; /* "device-mem": the flag is --device-mem, the variable SLUICE_DEVICE_MEM, the config key device-mem */
    const char
        *value; /* what the help shows after it: "BYTES"; for SL_OPT_CHOICE the choices: "f32|bf16|bf16-master" */
    sl_option_kind kind;
    const char *otherwise; /* default as text; NULL: none */
    const char *group;     /* heading in --help */
    const char *help;
} sl_option;

typedef struct sl_options sl_options;
/* The table must outlive the options. */
sl_status sl_options_create(const sl_option *table, int64_t count, sl_options **options);
void sl_options_destroy(sl_options *options);
sl_status sl_options_copy(const sl_options *options, sl_options **out);
/* Checks the value against the kind. */
sl_status sl_options_set(sl_options *options, const char *name, const char *value);
/* --name value, --name=value, --flag, --no-flag. The first argument that is no option stops it with an error. */
sl_status sl_options_parse_args(sl_options *options, int argc, char **argv);
/* The same, with up to `most` arguments that are no options, before, between or behind them, into `operands`. */
sl_status sl_options_parse_operands(sl_options *options, int argc, char **argv, const char **operands, int64_t most,
                                    int64_t *count);
/* A JSON object {"steps": 100, "model": "small"} or lines of `key = value` with # comments. A file that is not there or
 * is broken is wrong usage as a wrong key is: SL_E_USAGE. */
sl_status sl_options_parse_file(sl_options *options, const char *path);
sl_status sl_options_parse_env(sl_options *options);

/* As text; NULL when unset without default. Unknown names are errors here, in the typed getters below they are bugs. */
sl_status sl_options_get(const sl_options *options, const char *name, const char **value);
bool sl_options_is_set(const sl_options *options, const char *name); /* by anyone but the default */
/* Its value where it was given, else `otherwise`. */
const char *sl_options_string_or(const sl_options *options, const char *name, const char *otherwise);
int64_t sl_options_i64_or(const sl_options *options, const char *name, int64_t otherwise);
const char *sl_options_string(const sl_options *options, const char *name); /* NULL when unset without default */
int64_t sl_options_i64(const sl_options *options, const char *name);
double sl_options_f64(const sl_options *options, const char *name);
size_t sl_options_bytes(const sl_options *options, const char *name);
sl_budget sl_options_budget(const sl_options *options, const char *name);
bool sl_options_flag(const sl_options *options, const char *name);
/* Every option with its value in force as members of the open object, for the run's record; parse_file reads it. */
void sl_options_put(const sl_options *options, sl_json_writer *w);
/* What --help prints below the usage line: groups, defaults, wrapped at 80 columns. */
void sl_options_help(const sl_option *table, int64_t count, sl_text *out);

#endif
