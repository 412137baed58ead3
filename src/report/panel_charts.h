/* Inside the charts of tables: how rows and columns are named, and the lines, which have a file of their own. */
#ifndef SL_REPORT_PANEL_CHARTS_H
#define SL_REPORT_PANEL_CHARTS_H

#include "report/panels.h"

enum { SL_MOST_BARS = 24, SL_MOST_POINTS = 400 };

/* "attention_gflop" in "GFLOP" -> "attention": the unit is printed once. */
void sl_table_short_name(const sl_table_column *column, char out[64]);
/* What a row is about: the texts that stand before column `end` and, if `numbers`, the counts among them ("dim 64"). What is the
 * same in all rows tells none apart; nothing may be left. */
void sl_table_row_texts(const sl_grid *g, int64_t row, int64_t end, bool numbers, char out[96]);
/* The same, or "row 7". */
void sl_table_row_label(const sl_grid *g, int64_t row, int64_t end, bool numbers, char out[96]);
/* The first column of numbers with a unit; n_columns: none. */
int64_t sl_table_first_measured(const sl_grid *g);

/* Lines for the first two units that are measured, side by side; false: the table is not of that kind. */
bool sl_draw_table_lines(sl_text *out, const sl_tables *t, const sl_grid *g, int number);

#endif
