/*
 * `sluice man [COMMAND]`: a manual page in roff, from the same usage texts and option tables as --help. sluice(1) lists the commands,
 * sluice-COMMAND(1) explains one; the page of `bench` holds every bench.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"

static const char usage[] = "usage: sluice man [COMMAND] [--all DIR]\n"
                            "\n"
                            "Prints the manual page of Sluice or of a command: `sluice man train | man -l -`\n"
                            "shows it. `make install` puts all of them where man looks for them.";

static const sl_option table[] = {
    {"all", "DIR", SL_OPT_STRING, NULL, "Output",
     "Write every page into this folder instead: sluice.1, sluice-train.1, ..."},
};

/* ---- roff ---- */

/* Text that is no request, whatever it begins with; `code` in bold. */
static void put_text(sl_text *out, const char *text, size_t length)
{
    bool bold = false;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        bool first = i == 0 || text[i - 1] == '\n';
        if (first && (c == '.' || c == '\''))
            sl_text_printf(out, "\\&");
        if (c == '`') {
            bold = !bold;
            sl_text_printf(out, bold ? "\\fB" : "\\fR");
        } else if (c == '-' || c == '\\')
            sl_text_printf(out, c == '-' ? "\\-" : "\\e");
        else
            sl_text_append(out, &c, 1);
    }
    if (bold)
        sl_text_printf(out, "\\fR");
}

static void put_line(sl_text *out, const char *text)
{
    put_text(out, text, strlen(text));
    sl_text_append(out, "\n", 1);
}

static void put_title(sl_text *out, const char *name, const char *summary)
{
    char title[64];
    snprintf(title, sizeof title, "sluice%s%s", name ? "-" : "", name ? name : "");
    sl_text_printf(out, ".TH \"");
    put_text(out, title, strlen(title));
    sl_text_printf(out, "\" 1 \"\" \"Sluice %s\" \"Sluice\"\n.SH NAME\n", sl_version());
    put_text(out, title, strlen(title));
    sl_text_printf(out, " \\- ");
    put_line(out, summary);
}

/* "usage: ..." up to the first empty line as it stands, then paragraphs; indented lines keep their breaks. */
static void put_usage(sl_text *out, const char *text)
{
    static const char word[] = "usage: ";
    const size_t indent = sizeof word - 1;
    const char *end = strstr(text, "\n\n");
    sl_text_printf(out, ".SH SYNOPSIS\n.nf\n");
    for (const char *at = text; at < end; at += strcspn(at, "\n") + 1) {
        at += strncmp(at, word, indent) == 0 ? indent : SL_MIN(strspn(at, " "), indent);
        put_text(out, at, strcspn(at, "\n"));
        sl_text_append(out, "\n", 1);
    }
    sl_text_printf(out, ".fi\n.SH DESCRIPTION\n");
    for (const char *at = end + 2; *at;) {
        size_t length = strcspn(at, "\n");
        if (length == 0)
            sl_text_printf(out, ".PP");
        else if (*at == ' ')
            sl_text_printf(out, ".br\n");
        put_text(out, at, length);
        sl_text_append(out, "\n", 1);
        at += length + (at[length] == '\n');
    }
}

static void put_option(sl_text *out, const sl_option *o)
{
    bool flag = o->kind == SL_OPT_FLAG, on = flag && o->otherwise && strcmp(o->otherwise, "true") == 0;
    char name[80];
    snprintf(name, sizeof name, "--%s%s", on ? "no-" : "", o->name);
    sl_text_printf(out, ".TP\n\\fB");
    put_text(out, name, strlen(name));
    sl_text_printf(out, "\\fR");
    if (!flag) {
        sl_text_printf(out, " \\fI");
        put_text(out, o->value, strlen(o->value));
        sl_text_printf(out, "\\fR");
    }
    sl_text_append(out, "\n", 1);
    put_line(out, o->help);
    if (!flag && o->otherwise && o->otherwise[0] && !strstr(o->help, "Default:")) {
        sl_text_printf(out, "Default: ");
        put_text(out, o->otherwise, strlen(o->otherwise));
        sl_text_printf(out, ".\n");
    }
}

/* Groups in the order of their first option, as in --help. */
static void put_options(sl_text *out, const sl_cli_page *page)
{
    for (int64_t i = 0; i < page->count; i++) {
        bool seen = false;
        for (int64_t j = 0; j < i; j++)
            seen |= strcmp(page->table[j].group, page->table[i].group) == 0;
        if (seen)
            continue;
        sl_text_printf(out, ".SS \"");
        put_text(out, page->table[i].group, strlen(page->table[i].group));
        sl_text_printf(out, "\"\n");
        for (int64_t j = i; j < page->count; j++)
            if (strcmp(page->table[j].group, page->table[i].group) == 0)
                put_option(out, &page->table[j]);
    }
}

/* ---- pages ---- */

static void put_see_also(sl_text *out, const sl_cli_page *pages, int64_t count, const char *but)
{
    const char *between = but ? "\\fBsluice\\fR(1)" : "";
    sl_text_printf(out, ".SH SEE ALSO\n%s", between);
    for (int64_t i = 0; i < count; i++)
        if (!strchr(pages[i].name, ' ') && (!but || strcmp(pages[i].name, but) != 0)) {
            sl_text_printf(out, "%s\\fBsluice\\-%s\\fR(1)", between[0] ? ",\n" : "", pages[i].name);
            between = ",";
        }
    sl_text_append(out, "\n", 1);
}

static void put_overview(sl_text *out, const sl_cli_page *pages, int64_t count)
{
    put_title(out, NULL, "train neural networks larger than the accelerator's memory");
    sl_text_printf(out, ".SH SYNOPSIS\n\\fBsluice\\fR \\fICOMMAND\\fR [options]\n.SH COMMANDS\n");
    for (int64_t i = 0; i < count; i++)
        if (!strchr(pages[i].name, ' ')) {
            sl_text_printf(out, ".TP\n\\fB%s\\fR\n", pages[i].name);
            put_line(out, pages[i].summary);
        }
    sl_text_printf(out,
                   ".SH EXIT STATUS\n0: done. 1: failure. 2: wrong usage. 3: the job does not fit its budgets.\n"
                   ".SH ENVIRONMENT\n.TP\n\\fBSLUICE_\\fR\\fIOPTION\\fR\n"
                   "Any option of \\fBtrain\\fR, \\fBplan\\fR and \\fBsweep\\fR, as in SLUICE_DEVICE_MEM=2GiB. The "
                   "command line and \\fB\\-\\-config\\fR win.\n");
    put_see_also(out, pages, count, NULL);
}

static void put_page(sl_text *out, const sl_cli_page *pages, int64_t count, const sl_cli_page *page)
{
    size_t length = strlen(page->name);
    put_title(out, page->name, page->summary);
    put_usage(out, page->command->usage);
    if (page->count)
        sl_text_printf(out, ".SH OPTIONS\n");
    put_options(out, page);
    for (int64_t i = 0; i < count; i++) /* what is below it */
        if (strncmp(pages[i].name, page->name, length) == 0 && pages[i].name[length] == ' ') {
            sl_text_printf(out, ".SH \"sluice %s\"\n", pages[i].name);
            put_line(out, pages[i].summary);
            put_options(out, &pages[i]);
        }
    put_see_also(out, pages, count, page->name);
}

/* ---- the command ---- */

static sl_status write_all(const sl_cli_page *pages, int64_t count, const char *folder)
{
    char path[1024];
    SL_TRY(sl_dir_create(folder));
    for (int64_t i = -1; i < count; i++) {
        sl_text text = {0};
        if (i >= 0 && strchr(pages[i].name, ' '))
            continue;
        int length =
            snprintf(path, sizeof path, "%s/sluice%s%s.1", folder, i < 0 ? "" : "-", i < 0 ? "" : pages[i].name);
        if (length >= (int) sizeof path)
            return sl_fail(SL_E_USAGE, "--all has a path of %zu bytes: use one of at most 900", strlen(folder));
        if (i < 0)
            put_overview(&text, pages, count);
        else
            put_page(&text, pages, count, &pages[i]);
        SL_TRY(sl_cli_write(&text, path));
    }
    return SL_OK;
}

static sl_status run(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    const sl_cli_page *pages, *page = NULL;
    const char *folder = sl_options_string(options, "all");
    int64_t count;
    sl_text text = {0};
    SL_TRY(sl_cli_pages(&pages, &count));
    if (folder)
        return write_all(pages, count, folder);
    if (n_operands && !sl_cli_find(operands[0]))
        return SL_E_USAGE;
    for (int64_t i = 0; i < count && n_operands; i++)
        if (strcmp(pages[i].name, operands[0]) == 0)
            page = &pages[i];
    if (page)
        put_page(&text, pages, count, page);
    else
        put_overview(&text, pages, count);
    return sl_cli_write(&text, NULL);
}

const sl_cli_command sl_cli_man = {
    .usage = usage, .operands = "COMMAND", .most_operands = 1, .table = table, .count = SL_COUNT(table), .run = run};
