/* Inside the page: its panels. Each appends one or more <section>s, or nothing where there is nothing to see. */
#ifndef SL_REPORT_PANELS_H
#define SL_REPORT_PANELS_H

#include "report/chart.h"
#include "report/input.h"
#include "report/limits.h"

/* `id` names the panel for links and tests; `sub` may be NULL. */
void sl_panel_begin(sl_text *out, const char *id, bool full, const char *title, const char *sub);
void sl_panel_end(sl_text *out);

/* A whole panel: the legend of the lines and their drawing. */
void sl_panel_lines(sl_text *out, const char *id, bool full, const char *title, const char *sub, const sl_lines *lines);
/* The same of a roofline, over the full width; the drawing's name is the title. */
void sl_panel_roof(sl_text *out, const char *id, const char *sub, const sl_roof *roof);

/* A table that scrolls on its own. `columns`: headings with | between them; # before one: numbers, +: small windows do without. */
void sl_html_table_begin(sl_text *out, const char *columns);
void sl_html_table_end(sl_text *out);
/* `class`: "n", "extra", "n extra". NULL is shown as a dash. */
void sl_html_cell(sl_text *out, const char *class, const char *text);

/* A headline number: value, what it is, what to compare it with (NULL: nothing). */
void sl_tile(sl_text *out, const char *id, const char *value, const char *name, const char *note);

void sl_panels_run(sl_text *out, const sl_run_log *log);
void sl_panel_timeline(sl_text *out, const sl_run_log *log);
void sl_panel_memory(sl_text *out, const sl_run_log *log);
void sl_panel_curves(sl_text *out, const sl_run_log *log);
void sl_panel_sessions(sl_text *out, const sl_run_log *log); /* of a run that was resumed */
void sl_panel_ops(sl_text *out, const sl_run_log *log);
void sl_panel_samples(sl_text *out, const sl_run_log *log); /* of a run that made some */
/* A cell of a table: prompt and text. */
void sl_html_sample(sl_text *out, const sl_log_sample *sample);

void sl_panels_tables(sl_text *out, const sl_tables *tables);
void sl_panels_sweep(sl_text *out, const sl_grid *grid);
/* Charts and roofline of a bench table, where it has the columns for it. */
void sl_panel_charts(sl_text *out, const sl_tables *tables, const sl_grid *grid, int number);
void sl_panel_grid(sl_text *out, const sl_grid *grid, int number);

/* Several runs in one: a table of their figures, and their curves in the same charts. false, and nothing, for fewer than two. */
bool sl_panels_compare(sl_text *out, const sl_input *const *inputs, int64_t count);

/* The name of the op's category; copies are "copy". */
const char *sl_op_category(const char *op);
/* A CSS class. */
const char *sl_category_color(const char *category);
/* How numbers of a column's unit are shown: "B" and "share" have forms of their own. */
sl_quantity sl_unit_quantity(const char *unit);
/* Series colours, s0 to s7, again and again. */
const char *sl_series_color(int64_t i);

/* Memory of a tier over the measured step: at each of `n` moments the bytes by class. */
typedef struct sl_memory {
    double bytes[SL_LOG_CLASSES];
} sl_memory;
/* Each moment is the fullest of its n-th of the step. peak: the largest sum of all. SL_OK with *there false when the log does not
 * tell. */
sl_status sl_memory_over_time(const sl_run_log *log, int tier, int n, sl_memory *moments, double *peak, bool *there);
/* End of the step in ns: of its last action, as predicted or as measured. */
int64_t sl_log_end_ns(const sl_run_log *log, bool predicted);

#endif
