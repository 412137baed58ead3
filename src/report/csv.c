/* CSV (RFC 4180): numbers in full, texts quoted where they must be. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/report.h"

static void put_text(sl_text *out, const char *text)
{
    /* A spreadsheet runs what begins like a formula, also behind a tab or a line break. */
    bool formula = text[0] && strchr("=+-@\t\r\n", text[0]);
    if (!formula && !strpbrk(text, ",\"\r\n")) {
        sl_text_printf(out, "%s", text);
        return;
    }
    sl_text_printf(out, formula ? "\"'" : "\"");
    for (; *text; text++)
        sl_text_printf(out, *text == '"' ? "\"\"" : "%c", *text);
    sl_text_printf(out, "\"");
}

static void put_number(sl_text *out, double value)
{
    char text[32];
    if (isfinite(value))
        sl_text_printf(out, "%s", sl_format_f64(value, text));
}

static void put_steps(sl_text *out, const sl_run_log *log)
{
    int64_t v = 0;
    sl_text_printf(out, "step,loss,grad_norm,learning_rate,seconds,data_s,tokens_per_s,validation_loss\r\n");
    for (int64_t i = 0; i < log->n_steps; i++) {
        const sl_log_step *s = &log->steps[i];
        const double numbers[] = {s->loss, s->grad_norm, s->learning_rate, s->seconds, s->data_s, s->tokens_per_s};
        sl_text_printf(out, "%" PRId64, s->step);
        for (int64_t n = 0; n < SL_COUNT(numbers); n++) {
            sl_text_printf(out, ",");
            put_number(out, numbers[n]);
        }
        while (v < log->n_validations && log->validations[v].step < s->step)
            v++;
        sl_text_printf(out, ",");
        if (v < log->n_validations && log->validations[v].step == s->step)
            put_number(out, log->validations[v].loss);
        sl_text_printf(out, "\r\n");
    }
}

static void put_grid(sl_text *out, const sl_grid *grid)
{
    for (int64_t c = 0; c < grid->n_columns; c++) {
        sl_text_printf(out, c ? "," : "");
        put_text(out, grid->columns[c].name);
    }
    sl_text_printf(out, "\r\n");
    for (int64_t row = 0; row < grid->n_rows; row++) {
        for (int64_t c = 0; c < grid->n_columns; c++) {
            const sl_cell_value *cell = sl_grid_cell(grid, row, c);
            sl_text_printf(out, c ? "," : "");
            if (cell->kind == SL_VALUE_TEXT)
                put_text(out, cell->text);
            else if (cell->kind == SL_VALUE_NUMBER)
                put_number(out, cell->number);
        }
        sl_text_printf(out, "\r\n");
    }
}

void sl_report_csv(sl_text *out, const sl_input *input)
{
    if (input->log) {
        put_steps(out, input->log);
        return;
    }
    for (const sl_grid *grid = input->tables->grids; grid; grid = grid->next) {
        if (grid != input->tables->grids)
            sl_text_printf(out, "\r\n");
        put_grid(out, grid);
    }
}
