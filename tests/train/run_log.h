/* A run's folder and its event log, parsed, for tests of what a run says. */
#ifndef SL_TESTS_RUN_LOG_H
#define SL_TESTS_RUN_LOG_H

#include "run_job.h"

static char out[512], options[1400];
static sl_region *region; /* of everything parsed */

static inline const sl_json *parse(const char *text, size_t length)
{
    const sl_json *root;
    CHECK_OK(sl_json_parse(region, "text", text, length, &root));
    return root;
}

static inline double number(const sl_json *object, const char *key)
{
    const sl_json *value = sl_json_get(object, key);
    CHECK_MSG(value && value->kind == SL_JSON_NUMBER, "\"%s\" is no number", key);
    return value && value->kind == SL_JSON_NUMBER ? value->number : -1;
}

static inline const char *string(const sl_json *object, const char *key)
{
    const sl_json *value = sl_json_get(object, key);
    CHECK_MSG(value && value->kind == SL_JSON_STRING, "\"%s\" is no string", key);
    return value && value->kind == SL_JSON_STRING ? value->string : "";
}

typedef struct event_log {
    const sl_json *events[2000];
    int64_t count;
} event_log;

static inline void read_log(event_log *log)
{
    char path[600], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/events.jsonl", out);
    CHECK_OK(sl_file_read_all(path, 1 << 26, &text, &length));
    log->count = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        REQUIRE(log->count < SL_COUNT(log->events));
        log->events[log->count++] = parse(line, (size_t) (end - line));
    }
    sl_free(text);
}

/* The n-th event of a type, from 0; NULL: there are not so many. */
static inline const sl_json *event(const event_log *log, const char *type, int64_t n)
{
    for (int64_t i = 0; i < log->count; i++)
        if (strcmp(string(log->events[i], "event"), type) == 0 && n-- == 0)
            return log->events[i];
    return NULL;
}

/* The steps of a type's events, as "2 4 7". */
static inline const char *steps_of(const event_log *log, const char *type)
{
    static char text[200];
    text[0] = 0;
    const sl_json *e;
    for (int64_t i = 0; (e = event(log, type, i)) != NULL; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.0f", i ? " " : "", number(e, "step"));
    return text;
}

#endif
