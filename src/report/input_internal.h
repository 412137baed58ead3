/* Inside the readers: where they are in a file. */
#ifndef SL_REPORT_INPUT_INTERNAL_H
#define SL_REPORT_INPUT_INTERNAL_H

#include "report/input.h"

typedef struct sl_place_in_file {
    const char *path;
    int64_t line; /* 0: the file is one value, whose nodes know their lines */
} sl_place_in_file;

typedef struct sl_reading {
    sl_input *input;
    sl_place_in_file at;
    /* Capacities of the log's arrays. */
    int64_t step_room, validation_room, sample_room, op_room, action_room, place_room, session_room;
    int64_t row_room; /* of a sweep's cells */
} sl_reading;

/* "path:12:7: <message>" for a node of the current line. */
sl_status sl_reading_fail(const sl_reading *r, const sl_json *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A member that may be absent or null; another kind is an error. Strings are copied into the input's region. */
sl_status sl_reading_number(const sl_reading *r, const sl_json *object, const char *key, double otherwise, double *out);
sl_status sl_reading_count(const sl_reading *r, const sl_json *object, const char *key, int64_t otherwise,
                           int64_t *out);
sl_status sl_reading_text(const sl_reading *r, const sl_json *object, const char *key, const char **out);
/* Copied into the region; bytes behind a NUL are lost. */
sl_status sl_reading_keep(const sl_reading *r, const char *text, const char **out);

/* Room for one more item in a growing array. */
sl_status sl_reading_room(void *array, int64_t count, int64_t *room, size_t size);

sl_status sl_reading_event(sl_reading *r, const char *event, const sl_json *line);
sl_status sl_reading_tables(sl_reading *r, const sl_json *root);
sl_status sl_reading_sweep(sl_reading *r, const sl_json *line);
sl_status sl_reading_cell(sl_reading *r, const sl_json *line);
/* After the last row. */
void sl_reading_finish_columns(sl_grid *grid);
void sl_reading_finish_sweep(sl_grid *grid);

#endif
