/* `sluice report`: what other commands wrote, as a page to look at. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/file.h"
#include "report/report.h"

static const char usage[] = "usage: sluice report FILE|DIR... [--out PAGE.html] [--trace TRACE.json]\n"
                            "                     [--csv TABLE.csv]\n"
                            "\n"
                            "Shows what other commands wrote: the folder of a run (or its events.jsonl), a\n"
                            "sweep, the JSON of a bench or of `sluice system`. Writes one HTML page with all\n"
                            "pictures inside, which opens anywhere and needs no network. Several files\n"
                            "become one page, which compares their runs in shared charts. A run that is\n"
                            "still going can be looked at too. With --trace it writes the streams of a step\n"
                            "for https://ui.perfetto.dev or chrome://tracing, with --csv a run's steps or\n"
                            "the table's rows.";

static const sl_option table[] = {
    {"out", "FILE", SL_OPT_STRING, NULL, "Output",
     "The page. Default: report.html in the run's folder, or beside the file with .html for its ending; for several "
     "files, that of the first."},
    {"trace", "FILE", SL_OPT_STRING, NULL, "Output", "Trace of the step the log recorded last (one run only)."},
    {"csv", "FILE", SL_OPT_STRING, NULL, "Output", "Steps of a run, or the table's rows (one file only)."},
    {"quiet", NULL, SL_OPT_FLAG, "false", "Output", "Print only where the files are."},
};

typedef struct job {
    const char *const *paths;
    sl_input *inputs[SL_CLI_OPERANDS];
    int64_t count;
} job;

static sl_status default_page(const char *path, char out[1024])
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *dot = strrchr(name, '.');
    int length = dot && dot > name ? (int) (dot - path) : (int) strlen(path);
    int wrote = sl_dir_exists(path)                 ? snprintf(out, 1024, "%s/report.html", path)
                : strcmp(name, "events.jsonl") == 0 ? snprintf(out, 1024, "%.*sreport.html", (int) (name - path), path)
                                                    : snprintf(out, 1024, "%.*s.html", length, path);
    if (wrote >= 1024)
        return sl_fail(SL_E_USAGE, "the file's path has %zu bytes: give --out", strlen(path));
    return SL_OK;
}

static sl_status write_page(const job *j, const char *path)
{
    sl_text page = {0};
    sl_report_page(&page, (const sl_input *const *) j->inputs, j->count);
    return sl_cli_write(&page, path);
}

static sl_status write_trace(const job *j, const char *path)
{
    sl_text trace = {0};
    if (j->count > 1)
        return sl_fail(SL_E_USAGE, "--trace takes one run: give one file, or leave --trace out");
    sl_status status = sl_report_trace(&trace, j->inputs[0]);
    if (status != SL_OK) {
        sl_text_free(&trace);
        return status;
    }
    return sl_cli_write(&trace, path);
}

static sl_status write_csv(const job *j, const char *path)
{
    sl_text csv = {0};
    if (j->count > 1)
        return sl_fail(SL_E_USAGE, "--csv takes one file: give one, or leave --csv out");
    sl_report_csv(&csv, j->inputs[0]);
    return sl_cli_write(&csv, path);
}

static sl_status show(const job *j)
{
    int columns = sl_cli_columns(STDOUT_FILENO), width = columns || !isatty(STDOUT_FILENO) ? columns : 80;
    for (int64_t i = 0; i < j->count; i++) {
        sl_text text = {0};
        sl_report_terminal(&text, j->inputs[i], width);
        sl_text_append(&text, "\n", 1);
        SL_TRY(sl_cli_write(&text, NULL));
    }
    return SL_OK;
}

static sl_status report(const sl_options *options, job *j)
{
    const char *page = sl_options_string(options, "out"), *trace = sl_options_string(options, "trace");
    const char *csv = sl_options_string(options, "csv");
    char path[1024];
    for (int64_t i = 0; i < j->count; i++)
        SL_TRY(sl_input_read(j->paths[i], &j->inputs[i]));
    if (!page) {
        SL_TRY(default_page(j->paths[0], path));
        page = path;
    }
    SL_TRY(write_page(j, page));
    if (trace)
        SL_TRY(write_trace(j, trace));
    if (csv)
        SL_TRY(write_csv(j, csv));
    if (!sl_options_flag(options, "quiet"))
        SL_TRY(show(j));
    printf("page    %s\n", page);
    if (trace)
        printf("trace   %s (open it at https://ui.perfetto.dev)\n", trace);
    if (csv)
        printf("csv     %s\n", csv);
    return SL_OK;
}

static sl_status run(const sl_options *options, const char *const *operands, int64_t count)
{
    job j = {.paths = operands, .count = count};
    if (count == 0)
        return sl_fail(SL_E_USAGE, "report needs a file or a run's folder: sluice report runs/first");
    sl_status status = report(options, &j);
    for (int64_t i = 0; i < count; i++)
        sl_input_destroy(j.inputs[i]);
    return status;
}

const sl_cli_command sl_cli_report = {.usage = usage,
                                      .operands = "FILE|DIR",
                                      .most_operands = SL_CLI_OPERANDS,
                                      .table = table,
                                      .count = SL_COUNT(table),
                                      .run = run};
