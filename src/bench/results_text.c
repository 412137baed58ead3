/* Results for people: facts, then each table with its columns aligned, then the notes. Widths count characters, not
 * bytes; bars are drawn in eighths of a character, on terminals only. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "bench/internal.h"

enum { GAP = 2, BAR_CHARACTERS = 16, MOST_COLUMNS = 32 };

static void format_number(double value, int decimals, char out[64])
{
    if (decimals >= 0)
        snprintf(out, 64, "%.*f", decimals, value);
    else
        snprintf(out, 64, "%.4g", value);
}

static const char *format_cell(const sl_cell *cell, const sl_column *column, char out[64])
{
    switch (cell->kind) {
    case SL_CELL_TEXT:
        return cell->as.text;
    case SL_CELL_COUNT:
        return sl_format_count(cell->as.count, out);
    case SL_CELL_NUMBER:
        format_number(cell->as.number, column ? column->decimals : -1, out);
        return out;
    case SL_CELL_FLAG:
        return cell->as.count ? "yes" : "no";
    default:
        return "-";
    }
}

/* Does a name such as "fwd_ms" or "link_gbps" already tell its unit? */
static bool tells_unit(const char *name, const char *unit)
{
    static const struct {
        const char *unit, *ending;
    } spelled[] = {{"GB/s", "gbps"}, {"TFLOP/s", "tflops"}, {"GFLOP/s", "gflops"}, {"%", "percent"}, {"us", "us"}};
    const char *ending = unit;
    for (int64_t i = 0; i < SL_COUNT(spelled); i++)
        if (strcmp(spelled[i].unit, unit) == 0)
            ending = spelled[i].ending;
    size_t length = strlen(name), end = strlen(ending);
    return !unit[0] || (length >= end && strcasecmp(name + length - end, ending) == 0);
}

/* "fwd_ms" -> "fwd ms", "link_gbps" -> "link GB/s", "nominal" -> "nominal TFLOP/s" */
static void heading(const sl_column *column, char out[64])
{
    bool told = tells_unit(column->name, column->unit);
    const char *end = strrchr(column->name, '_');
    size_t stem = told && column->unit[0] ? (size_t) (end ? end - column->name : 0) : strlen(column->name);
    int n = snprintf(out, 64, "%.*s", (int) SL_MIN(stem, (size_t) 48), column->name);
    for (char *c = out; *c; c++)
        if (*c == '_')
            *c = ' ';
    if (column->unit[0])
        snprintf(out + n, (size_t) (64 - n), "%s%s", n ? " " : "", column->unit);
}

static void end_line(sl_text *out)
{
    while (out->length && out->data && out->data[out->length - 1] == ' ')
        out->data[--out->length] = 0; /* no blanks before a line's end */
    sl_text_append(out, "\n", 1);
}

/* A column with a text in any row stands left, all others right. */
static void measure(const sl_table *table, int *width, bool *right, double *largest)
{
    char text[64];
    for (int64_t c = 0; c < table->n_columns; c++) {
        heading(&table->columns[c], text);
        width[c] = sl_text_columns(text);
        right[c] = true;
        for (const sl_row *row = table->first; row; row = row->next) {
            const sl_cell *cell = &row->cells[c];
            width[c] = SL_MAX(width[c], sl_text_columns(format_cell(cell, &table->columns[c], text)));
            right[c] &= cell->kind != SL_CELL_TEXT && cell->kind != SL_CELL_FLAG;
            if (table->columns[c].bar && cell->kind == SL_CELL_NUMBER)
                *largest = fmax(*largest, cell->as.number);
        }
    }
}

static void put_table(const sl_table *table, int columns, sl_text *out)
{
    int width[MOST_COLUMNS], total = 0;
    bool right[MOST_COLUMNS];
    char text[64];
    double largest = 0;
    SL_ASSERT(table->n_columns <= MOST_COLUMNS);
    measure(table, width, right, &largest);
    sl_text_printf(out, "\n%s\n", table->title);
    for (int64_t c = 0; c < table->n_columns; c++) {
        heading(&table->columns[c], text);
        sl_text_pad(out, "", GAP, true);
        sl_text_pad(out, text, width[c], right[c]);
        total += width[c] + GAP;
    }
    end_line(out);
    for (const sl_row *row = table->first; row; row = row->next) {
        double share = -1;
        for (int64_t c = 0; c < table->n_columns; c++) {
            sl_text_pad(out, "", GAP, true);
            sl_text_pad(out, format_cell(&row->cells[c], &table->columns[c], text), width[c], right[c]);
            if (table->columns[c].bar && row->cells[c].kind == SL_CELL_NUMBER && largest > 0)
                share = row->cells[c].as.number / largest;
        }
        if (share >= 0 && columns >= total + BAR_CHARACTERS + GAP) {
            sl_text_pad(out, "", GAP, true);
            sl_text_bar(out, share, BAR_CHARACTERS);
        }
        end_line(out);
    }
}

void sl_results_text(const sl_results *results, int columns, sl_text *out)
{
    char text[64];
    int widest = 0;
    for (const sl_entry *fact = results->facts.first; fact; fact = fact->next)
        widest = SL_MAX(widest, sl_text_columns(fact->key));
    for (const sl_entry *fact = results->facts.first; fact; fact = fact->next) {
        if (fact->value.kind == SL_CELL_NONE)
            continue;
        char key[64];
        heading(&(sl_column){.name = fact->key, .unit = ""}, key);
        sl_text_pad(out, key, widest + GAP, false);
        sl_text_printf(out, "%s\n", format_cell(&fact->value, NULL, text));
    }
    for (const sl_table *table = results->first; table; table = table->next)
        put_table(table, columns, out);
    if (results->notes.first)
        sl_text_append(out, "\n", 1);
    for (const sl_entry *note = results->notes.first; note; note = note->next)
        sl_text_printf(out, "%s\n", note->value.as.text);
}
