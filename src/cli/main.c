/* `sluice COMMAND [options]`: finds the command, routes log lines to stderr, turns statuses into exit codes. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/fault.h"
#include "core/file.h"
#include "core/log.h"

static int status_line_shown;

bool sl_cli_is_terminal(void)
{
    return isatty(STDERR_FILENO) && isatty(STDOUT_FILENO);
}

void sl_cli_status_clear(void)
{
    if (status_line_shown)
        fputs("\r\033[K", stderr);
    status_line_shown = 0;
}

void sl_cli_status_line(const char *text)
{
    if (!sl_cli_is_terminal())
        return;
    fprintf(stderr, "\r%.*s\033[K", sl_cli_width(), text);
    fflush(stderr);
    status_line_shown = 1;
}

static void print_log(void *user, sl_log_level level, const char *message)
{
    (void) user;
    sl_cli_status_clear();
    fprintf(stderr, "%s%s\n", level >= SL_LOG_WARN ? "sluice: warning: " : "", message);
}

void sl_cli_log_level(const sl_options *options)
{
    bool quiet = sl_options_flag(options, "quiet"), verbose = sl_options_flag(options, "verbose");
    sl_log_set(print_log, NULL, verbose ? SL_LOG_DEBUG : quiet ? SL_LOG_WARN : SL_LOG_INFO);
}

int sl_cli_fail(sl_status status)
{
    sl_cli_status_clear();
    fflush(stdout);
    fprintf(stderr, "sluice: %s\n", sl_error_message());
    return status == SL_E_USAGE ? 2 : status == SL_E_DOES_NOT_FIT ? 3 : 1;
}

bool sl_cli_explain(const sl_option *table, int64_t count, const char *usage, int argc, char **argv)
{
    bool asked = false;
    for (int i = 0; i < argc; i++)
        asked |= strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (!asked)
        return false;
    sl_text help = {0};
    sl_options_help(table, count, &help);
    printf("%s\n\n%s", usage, sl_text_status(&help) == SL_OK && help.data ? help.data : "");
    sl_text_free(&help);
    return true;
}

/* What was printed may not have arrived: a full disk shows only now. */
static int close_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "sluice: cannot write to standard output: %s\n", strerror(errno));
    return code ? code : 1;
}

static int run_job(const sl_cli_command *command, int argc, char **argv)
{
    sl_job *job = NULL;
    int code;
    sl_status status = sl_job_create(&job);
    if (status == SL_OK)
        status = sl_job_parse(job, argc, argv);
    if (status == SL_OK) {
        sl_cli_log_level(job->options);
        code = command->run_job(job);
    } else
        code = sl_cli_fail(status);
    sl_job_destroy(job);
    return code;
}

/* The command line wins over the file, the file over the environment. */
static sl_status parse_everywhere(sl_options *options, int argc, char **argv)
{
    SL_TRY(sl_options_parse_env(options));
    SL_TRY(sl_options_parse_args(options, argc, argv));
    if (sl_options_string(options, "config"))
        SL_TRY(sl_options_parse_file(options, sl_options_string(options, "config")));
    sl_cli_log_level(options);
    return SL_OK;
}

static sl_status run_options(const sl_cli_command *command, sl_options *options, int argc, char **argv)
{
    const char *operands[SL_CLI_OPERANDS];
    int64_t count = 0;
    if (command->options)
        SL_TRY(parse_everywhere(options, argc, argv));
    else
        SL_TRY(sl_options_parse_operands(options, argc, argv, operands, command->most_operands, &count));
    return command->run(options, operands, count);
}

int sl_cli_run(const sl_cli_command *command, int argc, char **argv)
{
    sl_options *options;
    int64_t count = command->count;
    if (command->run_arguments)
        return command->run_arguments(argc, argv);
    const sl_option *table = command->options ? command->options(&count) : command->table;
    if (sl_cli_explain(table, count, command->usage, argc, argv))
        return 0;
    if (command->run_job)
        return run_job(command, argc, argv);
    sl_status status = sl_options_create(table, count, &options);
    if (status != SL_OK)
        return sl_cli_fail(status);
    status = run_options(command, options, argc, argv);
    sl_options_destroy(options);
    return status == SL_OK ? 0 : sl_cli_fail(status);
}

sl_status sl_cli_write(sl_text *text, const char *path)
{
    sl_status status = sl_text_status(text);
    const char *data = text->data ? text->data : "";
    if (status == SL_OK && path)
        status = sl_file_write_atomic(path, data, text->length);
    else if (status == SL_OK)
        fwrite(data, 1, text->length, stdout); /* decoded text may have NULs */
    sl_text_free(text);
    return status;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a run's progress is of use in a pipe or a log, too */
    signal(SIGXFSZ, SIG_IGN);         /* a file over its limit is a failed write with a message, not a kill */
    sl_log_set(print_log, NULL, SL_LOG_INFO);
    sl_status status = sl_fault_arm_from_env();
    if (status != SL_OK)
        return sl_cli_fail(status);
    if (argc < 2) {
        sl_cli_overview(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0)
        name = "version";
    const sl_cli_command *command = sl_cli_find(name);
    return command ? close_output(sl_cli_run(command, argc - 2, argv + 2)) : sl_cli_fail(SL_E_USAGE);
}
