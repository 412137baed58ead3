/* The command line: the only part of Sluice that prints. One file per command, listed in commands.def.
 * Exit codes: 0 done, 1 failure, 2 wrong usage, 3 does not fit. */
#ifndef SL_CLI_CLI_H
#define SL_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "bench/results.h"
#include "core/options.h"
#include "train/job.h"

/* A command: what --help, completion and the manual pages show of it, and what it does. `sl_cli_<name>` in src/cli/<name>.c. */
typedef struct sl_cli_command {
    const char *usage;    /* "usage: sluice NAME ...", an empty line, what it does */
    const char *operands; /* arguments that are no options: "FILE|DIR", "bash|zsh|fish", "COMMAND"; NULL: none */
    int64_t most_operands;
    const sl_option *table;
    int64_t count;
    /* NULL: it is `table`. A table that is made on first use; these options may also stand in the environment and in --config. */
    const sl_option *(*options)(int64_t *count);
    /* One of three: what it does with its options and operands; with the job that they describe; or, where neither is enough, with the
     * arguments behind its name. The last two return an exit code. */
    sl_status (*run)(const sl_options *options, const char *const *operands, int64_t count);
    int (*run_job)(const sl_job *job);
    int (*run_arguments)(int argc, char **argv);
} sl_cli_command;
enum { SL_CLI_OPERANDS = 64 }; /* the most that any command takes */

#define SL_COMMAND(name, summary) extern const sl_cli_command sl_cli_##name;
#include "cli/commands.def"
#undef SL_COMMAND

/* One page of the manual: a command, or a bench of `sluice bench`. The one list that dispatch, completion and manual walk. (pages.c) */
typedef struct sl_cli_page {
    const char *name, *summary; /* "train", "bench lm" */
    const sl_cli_command *command;
    const sl_option *table;
    int64_t count;
} sl_cli_page;
/* All of them, each command followed by what is below it. Made on first use and kept. */
sl_status sl_cli_pages(const sl_cli_page **pages, int64_t *count);
/* A command by name; NULL with sl_error_message() when there is none. */
const sl_cli_command *sl_cli_find(const char *name);

/* Prints "sluice: <message>" on stderr and returns the exit code that goes with the status. */
int sl_cli_fail(sl_status status);

/* Prints the usage text and what the table says when --help is among the arguments; true if so. */
bool sl_cli_explain(const sl_option *table, int64_t count, const char *usage, int argc, char **argv);

/* A whole command: help, its options from the arguments, then what it does. Returns the exit code. */
int sl_cli_run(const sl_cli_command *command, int argc, char **argv);

/* Writes a text to a file, or (path NULL) to stdout, unless building it failed, and frees it. */
sl_status sl_cli_write(sl_text *text, const char *path);

/* --quiet keeps log lines to warnings, --verbose shows all of them. */
void sl_cli_log_level(const sl_options *options);

/* Figures in words (show.c). Those with `out` may also return a constant. */
const char *sl_cli_flops(double tflops, char out[32]); /* "12.3 TFLOP/s", "85 GFLOP/s" */
char *sl_cli_speed(double tokens_per_s, char out[32]); /* "11,327", "1.6" */
const char *sl_cli_limit(const char *limit);           /* what holds a step back */
enum { SL_CLI_BUDGET = 96 };
/* A budget, with its percentage where it is one of what the job takes without budgets (`unlimited`; else 0). */
const char *sl_cli_budget(size_t bytes, size_t unlimited, char out[SL_CLI_BUDGET]);
const char *sl_cli_plural(int64_t count); /* "s" unless it is one */

/* Plans a job and prints the page, or with --json the object, of `sluice plan`. Returns the exit code. (plan.c) */
int sl_cli_show_plan(const sl_job *job);

/* The list of commands that `sluice --help` prints. (help.c) */
void sl_cli_overview(FILE *out);

/* Takes the lock of an open file or folder, for as long as it is open; false: another process still has it after the
 * patience. Where the file system has no locks, nothing is held. (lock.c) */
bool sl_cli_lock(int fd, double patience_s);

/* Can a file of this name be written? Asked before hours of work whose end it is. (lock.c) */
sl_status sl_cli_check_writable(const char *path);

/* Tables, or the JSON object, on stdout; with `path` the object goes there too. (bench.c) */
sl_status sl_cli_results(const sl_results *results, bool json, const char *path);

/* Columns of the terminal behind a file descriptor; 0: none, or not known. (progress.c) */
int sl_cli_columns(int fd);
/* Columns that a line of progress may take. */
int sl_cli_width(void);

/* Fields side by side; those of least importance are left out until the rest fits `width` columns, the last one is cut. */
enum { SL_CLI_LINE = 256 };
typedef struct sl_cli_field {
    const char *text; /* empty: none */
    int importance;
} sl_cli_field;
void sl_cli_fit(const sl_cli_field *fields, int count, int width, char out[SL_CLI_LINE]);

/* A step of `sluice train`. */
typedef struct sl_cli_progress {
    int64_t step, steps;
    double loss, learning_rate, tokens_per_s, mfu, seconds_left;
    size_t device_bytes;
    bool skipped;
} sl_cli_progress;
void sl_cli_progress_line(const sl_cli_progress *progress, int width, char out[SL_CLI_LINE]);

/* A sample: the beginnings of prompt and text on one line, without what a terminal would take as a command. */
void sl_cli_sample_line(int64_t step, const char *prompt, const char *text, int width, char out[SL_CLI_LINE]);

/* A line that is redrawn in place on a terminal, cut to its width; elsewhere nothing. */
void sl_cli_status_line(const char *text);
void sl_cli_status_clear(void);
bool sl_cli_is_terminal(void);

#endif
