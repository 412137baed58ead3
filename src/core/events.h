/* The run's event log: one JSON object per line, typed by "event". Tables, plots and traces are views of this file.
 * A NULL log swallows everything, so callers never ask. */
#ifndef SL_CORE_EVENTS_H
#define SL_CORE_EVENTS_H

#include "core/json.h"

typedef struct sl_events sl_events;
/* Appends to `path`, which is cut after its last complete line first (a killed run may have left half of one). */
sl_status sl_events_open(const char *path, sl_events **events);
void sl_events_close(sl_events *events);
/* begin: starts {"event":type,"t":seconds since the log was opened,...}; put members through the writer; end: writes
 * the line. */
sl_json_writer *sl_events_begin(sl_events *events, const char *type);
sl_status sl_events_end(sl_events *events);

#endif
