/* The list of commands and benches with their option tables. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/cli.h"
#include "core/suggest.h"

static const struct {
    const char *name, *summary;
    const sl_cli_command *command;
} commands[] = {
#define SL_COMMAND(name, summary) {#name, summary, &sl_cli_##name},
#include "cli/commands.def"
#undef SL_COMMAND
};

enum { MOST_PAGES = 64 };

static sl_status add_benches(sl_cli_page *pages, int64_t *count)
{
    static char names[MOST_PAGES][48];
    int64_t benches;
    const sl_bench_def *const *defs = sl_bench_defs(&benches);
    SL_ASSERT(benches + SL_COUNT(commands) <= MOST_PAGES);
    for (int64_t i = 0; i < benches; i++) {
        sl_option *table;
        sl_cli_page *page = &pages[*count];
        snprintf(names[i], sizeof names[i], "bench %s", defs[i]->name);
        *page = (sl_cli_page){.name = names[i], .summary = defs[i]->question, .command = &sl_cli_bench};
        SL_TRY(sl_bench_options(defs[i], &table, &page->count));
        page->table = table; /* kept */
        (*count)++;
    }
    return SL_OK;
}

sl_status sl_cli_pages(const sl_cli_page **out, int64_t *out_count)
{
    static sl_cli_page pages[MOST_PAGES];
    static int64_t filled;
    int64_t count = 0;
    for (int64_t i = 0; i < SL_COUNT(commands) && !filled; i++) {
        sl_cli_page *page = &pages[count++];
        const sl_cli_command *command = commands[i].command;
        *page = (sl_cli_page){commands[i].name, commands[i].summary, command, command->table, command->count};
        if (command->options)
            page->table = command->options(&page->count);
        if (command == &sl_cli_bench)
            SL_TRY(add_benches(pages, &count));
    }
    filled = filled ? filled : count;
    *out = pages;
    *out_count = filled;
    return SL_OK;
}

const sl_cli_command *sl_cli_find(const char *name)
{
    sl_suggestion suggestion = {.word = name};
    for (int64_t i = 0; i < SL_COUNT(commands); i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].command;
        sl_suggest(&suggestion, commands[i].name);
    }
    if (sl_suggested(&suggestion))
        sl_fail(SL_E_USAGE, "unknown command \"%s\": did you mean \"%s\"?", name, sl_suggested(&suggestion));
    else
        sl_fail(SL_E_USAGE, "unknown command \"%.100s\": `sluice --help` lists those there are", name);
    return NULL;
}
