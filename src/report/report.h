/*
 * Views of what was read: one HTML page that needs nothing but itself, a trace for Perfetto and chrome://tracing, CSV, and tables
 * for a terminal. All of them append to a text.
 */
#ifndef SL_REPORT_REPORT_H
#define SL_REPORT_REPORT_H

#include "core/text.h"
#include "report/input.h"

void sl_report_page(sl_text *out, const sl_input *const *inputs, int64_t count);

/* The streams of the last recorded step as tracks, measured and predicted, and memory by class as counters. SL_E_USAGE when the
 * input has no timeline. */
sl_status sl_report_trace(sl_text *out, const sl_input *input);
/* What the bars of page, table and trace add up to: ns a stream was busy. */
int64_t sl_report_busy_ns(const sl_run_log *log, int stream, bool predicted);

/* A run's steps, or an input's tables one below the other. */
void sl_report_csv(sl_text *out, const sl_input *input);

/* `columns` > 0: a terminal of that width, where bars are drawn. */
void sl_report_terminal(sl_text *out, const sl_input *input, int columns);

#endif
