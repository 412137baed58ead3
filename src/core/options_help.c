/* --help from the table:
 *
 *     Budgets
 *       --device-mem BYTES        Device memory the run may take, everything included. [2GiB]
 *
 * Groups come in the order of their first option. Help that tells the default in words ("Default: ...") gets no bracket.
 * An option too wide for its column gets a line of its own. */
#include <string.h>

#include "core/options.h"

enum { COLUMNS = 80, HELP_COLUMN = 28 };

/* The words of `help`, wrapped between HELP_COLUMN and COLUMNS; the cursor stands at `column`. */
static void put_wrapped(sl_text *out, const char *help, int column)
{
    bool first = true;
    while (*help) {
        help += strspn(help, " ");
        int length = (int) strcspn(help, " ");
        if (length == 0)
            break;
        if (!first && column + 1 + length > COLUMNS) {
            sl_text_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            first = true;
        }
        sl_text_printf(out, "%s%.*s", first ? "" : " ", length, help);
        column += length + !first;
        first = false;
        help += length;
    }
    sl_text_append(out, "\n", 1);
}

static void put_option(const sl_option *option, sl_text *out)
{
    size_t start = out->length;
    bool flag = option->kind == SL_OPT_FLAG;
    bool on = flag && option->otherwise && strcmp(option->otherwise, "true") == 0;
    sl_text_printf(out, "  --%s%s%s%s", on ? "no-" : "", option->name, flag ? "" : " ", flag ? "" : option->value);
    int column = (int) (out->length - start);
    if (column + 2 > HELP_COLUMN) {
        sl_text_append(out, "\n", 1);
        column = 0;
    }
    sl_text_printf(out, "%*s", HELP_COLUMN - column, "");
    sl_text help = {0};
    sl_text_printf(&help, "%s", option->help);
    bool told = strstr(option->help, "Default:") != NULL; /* in words: the value alone would mislead */
    if (option->otherwise && option->otherwise[0] && !flag && !told)
        sl_text_printf(&help, " [%s]", option->otherwise);
    if (help.data)
        put_wrapped(out, help.data, HELP_COLUMN);
    out->failed |= help.failed;
    sl_text_free(&help);
}

static bool seen_before(const sl_option *table, int64_t i)
{
    for (int64_t j = 0; j < i; j++)
        if (strcmp(table[j].group, table[i].group) == 0)
            return true;
    return false;
}

void sl_options_help(const sl_option *table, int64_t count, sl_text *out)
{
    for (int64_t i = 0; i < count; i++) {
        if (seen_before(table, i))
            continue;
        sl_text_printf(out, "%s\n", table[i].group);
        for (int64_t j = i; j < count; j++)
            if (strcmp(table[j].group, table[i].group) == 0)
                put_option(&table[j], out);
        sl_text_append(out, "\n", 1);
    }
    if (count)
        sl_text_printf(out, "Defaults stand in [brackets].\n");
}
