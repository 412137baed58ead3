/* `sluice bench NAME`: one command per question. The benches are in src/bench; this shows what they found. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "cli/cli.h"
#include "core/file.h"
#include "core/suggest.h"

static const char usage[] = "usage: sluice bench NAME [--quick] [--warmup N] [--steps N] [--json]\n"
                            "                    [--out FILE] ...\n"
                            "\n"
                            "One benchmark per question, on any machine and device. A result that differs\n"
                            "from its baseline is refused: its speed is withheld and the exit code is 1.";

static void print_list(FILE *out)
{
    int64_t count;
    const sl_bench_def *const *defs = sl_bench_defs(&count);
    fprintf(out, "%s\n\n", usage);
    for (int64_t i = 0; i < count; i++)
        fprintf(out, "  %-10s %s\n", defs[i]->name, defs[i]->question);
    fputs("\n  sluice bench NAME --help explains its options, `sluice report FILE` draws\n  what --out wrote.\n", out);
}

static sl_status find_bench(const char *name, const sl_bench_def **def)
{
    int64_t count;
    const sl_bench_def *const *defs = sl_bench_defs(&count);
    sl_suggestion suggestion = {.word = name};
    *def = sl_bench_find(name);
    for (int64_t i = 0; i < count; i++)
        sl_suggest(&suggestion, defs[i]->name);
    if (*def)
        return SL_OK;
    if (sl_suggested(&suggestion))
        return sl_fail(SL_E_USAGE, "there is no bench \"%s\": did you mean \"%s\"?", name, sl_suggested(&suggestion));
    return sl_fail(SL_E_USAGE, "there is no bench \"%s\"; `sluice bench --help` lists them", name);
}

sl_status sl_cli_results(const sl_results *results, bool json, const char *path)
{
    sl_json_writer w = {0};
    sl_text text = {0};
    sl_results_json(results, &w);
    sl_text_append(&w.text, "\n", 1);
    if (!json)
        sl_results_text(results, sl_cli_columns(STDOUT_FILENO), &text);
    sl_status status = sl_text_status(&w.text);
    if (status == SL_OK)
        status = sl_text_status(&text);
    if (status == SL_OK)
        fputs(json ? w.text.data : text.data, stdout);
    if (status == SL_OK && path)
        status = sl_file_write_atomic(path, w.text.data, w.text.length);
    sl_text_free(&w.text);
    sl_text_free(&text);
    return status;
}

static sl_status run(const sl_bench_def *def, const sl_options *options)
{
    sl_results *results = NULL;
    const char *path = sl_options_string(options, "out");
    if (path)
        SL_TRY(sl_cli_check_writable(path));
    sl_status status = sl_bench_run(def, options, sl_cli_status_line, &results);
    sl_cli_status_clear();
    SL_TRY(status);
    status = sl_cli_results(results, sl_options_flag(options, "json"), path);
    int64_t refused = sl_results_refused(results);
    bool incomplete = sl_results_incomplete(results);
    sl_results_destroy(results);
    if (status == SL_OK && incomplete)
        return sl_fail(SL_E_DEVICE, "the bench ended early: the last note says why, and what was measured is shown");
    if (status == SL_OK && refused)
        return sl_fail(SL_E_INTERNAL, "%lld result%s not match the baseline; the notes say which", (long long) refused,
                       refused == 1 ? " does" : "s do");
    return status;
}

static sl_status parse_and_run(const sl_bench_def *def, const sl_option *table, int64_t count, int argc, char **argv)
{
    sl_options *options;
    SL_TRY(sl_options_create(table, count, &options));
    sl_status status = sl_options_parse_args(options, argc, argv);
    if (status == SL_OK)
        status = run(def, options);
    sl_options_destroy(options);
    return status;
}

static int command(int argc, char **argv)
{
    const sl_bench_def *def = NULL;
    if (argc == 0) {
        print_list(stderr);
        return 2;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_list(stdout);
        return 0;
    }
    sl_option *table = NULL;
    int64_t count = 0;
    sl_status status = find_bench(argv[0], &def);
    if (status != SL_OK)
        return sl_cli_fail(status);
    char own[512];
    snprintf(own, sizeof own, "usage: sluice bench %s [options]\n\n%s", def->name, def->question);
    status = sl_bench_options(def, &table, &count);
    if (status == SL_OK && sl_cli_explain(table, count, own, argc - 1, argv + 1)) {
        sl_free(table);
        return 0;
    }
    if (status == SL_OK)
        status = parse_and_run(def, table, count, argc - 1, argv + 1);
    sl_free(table);
    return status == SL_OK ? 0 : sl_cli_fail(status);
}

const sl_cli_command sl_cli_bench = {.usage = usage, .operands = "BENCH", .run_arguments = command};
