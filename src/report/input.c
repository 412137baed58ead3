/*
 * Finding out what a file is. Each line of a log is parsed and dropped before the next, so that a log of a hundred thousand lines
 * costs its arrays and one line's tree. The first line decides: an object of its own means lines, anything else means that the
 * file is one value.
 */
#include "report/input.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "report/input_internal.h"

enum { LARGEST_FILE = 1 << 30 };

sl_status sl_reading_fail(const sl_reading *r, const sl_json *node, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    long long line = r->at.line ? (long long) r->at.line : (long long) node->line;
    return sl_fail(SL_E_FORMAT, "%s:%lld:%d: %s", r->at.path, line, node->column, text);
}

sl_status sl_reading_number(const sl_reading *r, const sl_json *object, const char *key, double otherwise, double *out)
{
    const sl_json *value = sl_json_get(object, key);
    *out = otherwise;
    if (!value || value->kind == SL_JSON_NULL)
        return SL_OK;
    if (value->kind != SL_JSON_NUMBER)
        return sl_reading_fail(r, value, "\"%s\" must be a number", key);
    *out = value->number;
    return SL_OK;
}

sl_status sl_reading_count(const sl_reading *r, const sl_json *object, const char *key, int64_t otherwise, int64_t *out)
{
    const sl_json *value = sl_json_get(object, key);
    *out = otherwise;
    if (!value || value->kind == SL_JSON_NULL)
        return SL_OK;
    if (value->kind != SL_JSON_NUMBER || !value->is_integer || value->integer < 0)
        return sl_reading_fail(r, value, "\"%s\" must be a whole number that is not negative", key);
    *out = value->integer;
    return SL_OK;
}

sl_status sl_reading_keep(const sl_reading *r, const char *text, const char **out)
{
    return sl_region_strdup(r->input->region, text, out);
}

sl_status sl_reading_text(const sl_reading *r, const sl_json *object, const char *key, const char **out)
{
    const sl_json *value = sl_json_get(object, key);
    if (!value || value->kind == SL_JSON_NULL)
        return SL_OK;
    if (value->kind != SL_JSON_STRING)
        return sl_reading_fail(r, value, "\"%s\" must be a text", key);
    return sl_reading_keep(r, value->string, out);
}

sl_status sl_reading_room(void *array, int64_t count, int64_t *room, size_t size)
{
    if (count < *room)
        return SL_OK;
    int64_t more = SL_MAX(2 * *room, 64);
    SL_TRY(sl_grow_impl(array, (size_t) *room, (size_t) more, size));
    *room = more;
    return SL_OK;
}

/* ---- lines ---- */

static sl_status read_object(sl_reading *r, const sl_json *line)
{
    const sl_json *event = sl_json_get(line, "event");
    if (line->kind != SL_JSON_OBJECT)
        return sl_reading_fail(r, line,
                               "a line must be a JSON object, as `sluice train`, `sweep` and `bench` write them");
    if (!event && (sl_json_get(line, "columns") || sl_json_get(line, "tables")))
        return sl_reading_tables(r, line);
    if (!event || event->kind != SL_JSON_STRING)
        return sl_reading_fail(r, line, "the object has no \"event\" and no \"columns\": this is no file of Sluice's");
    if (strcmp(event->string, "sweep") == 0)
        return sl_reading_sweep(r, line);
    if (strcmp(event->string, "cell") == 0)
        return sl_reading_cell(r, line);
    return sl_reading_event(r, event->string, line);
}

/* The JSON reader counts from the line's own beginning: its ":1:7: what" becomes "path:57:7: what". */
static sl_status parse_line(sl_reading *r, sl_region *region, const char *text, size_t length, const sl_json **line)
{
    sl_status status = sl_json_parse(region, "", text, length, line);
    if (status != SL_E_FORMAT)
        return status;
    const char *said = sl_error_message();
    char rest[512];
    snprintf(rest, sizeof rest, "%s", strncmp(said, ":1:", 3) == 0 ? said + 3 : said);
    return sl_fail(SL_E_FORMAT, "%s:%lld:%s", r->at.path, (long long) r->at.line, rest);
}

static sl_status read_line(sl_reading *r, const char *text, size_t length)
{
    sl_region *region;
    const sl_json *line;
    SL_TRY(sl_region_create(&region));
    sl_status status = parse_line(r, region, text, length, &line);
    if (status == SL_OK)
        status = read_object(r, line);
    sl_region_destroy(region);
    return status;
}

static bool is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i])
            return false;
    return true;
}

static sl_status read_lines(sl_reading *r, const char *text, size_t length)
{
    for (size_t from = 0; from < length;) {
        const char *end = memchr(text + from, '\n', length - from);
        size_t bytes = end ? (size_t) (end - text) - from : length - from;
        r->at.line++;
        if (!is_blank(text + from, bytes)) {
            sl_status status = read_line(r, text + from, bytes);
            if (status == SL_E_FORMAT && !end && r->at.line > 1) {
                r->input->cut = true;
                return SL_OK;
            }
            SL_TRY(status);
        }
        from += bytes + 1;
    }
    return SL_OK;
}

/* Is the first line an object of its own? */
static bool has_lines(const char *text, size_t length)
{
    const char *end = memchr(text, '\n', length);
    sl_region *region;
    const sl_json *line;
    if (sl_region_create(&region) != SL_OK)
        return false;
    bool lines = sl_json_parse(region, "", text, end ? (size_t) (end - text) : length, &line) == SL_OK &&
                 line->kind == SL_JSON_OBJECT;
    sl_region_destroy(region);
    return lines;
}

static sl_status read_whole(sl_reading *r, const char *text, size_t length)
{
    sl_region *region;
    const sl_json *root;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_json_parse(region, r->at.path, text, length, &root);
    if (status == SL_OK)
        status = read_object(r, root);
    sl_region_destroy(region);
    return status;
}

/* ---- */

sl_status sl_input_parse(const char *path, const char *text, size_t length, sl_input **out)
{
    sl_region *region;
    sl_input *input = NULL;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_region_alloc(region, &input, 1, sizeof *input);
    if (status != SL_OK) {
        sl_region_destroy(region);
        return status;
    }
    input->region = region;
    sl_reading reading = {.input = input, .at = {path, 0}};
    SL_TRY_GOTO(sl_region_strdup(region, path, &input->path), fail);
    if (is_blank(text, length)) {
        status = sl_fail(SL_E_FORMAT, "%s is empty: a run's log appears with its first step, a sweep's with its start",
                         path);
        goto fail;
    }
    SL_TRY_GOTO(has_lines(text, length) ? read_lines(&reading, text, length) : read_whole(&reading, text, length),
                fail);
    for (sl_grid *grid = input->tables ? input->tables->grids : NULL; grid; grid = grid->next)
        sl_reading_finish_columns(grid);
    if (input->tables && input->tables->grids && strcmp(input->tables->kind, "sweep") == 0)
        sl_reading_finish_sweep(input->tables->grids);
    if (!input->log && !input->tables) {
        status = sl_fail(SL_E_FORMAT, "%s holds nothing that can be shown", path);
        goto fail;
    }
    *out = input;
    return SL_OK;
fail:
    sl_input_destroy(input);
    return status;
}

sl_status sl_input_read(const char *path, sl_input **input)
{
    char inside[1024], *text;
    size_t length;
    if (sl_dir_exists(path)) {
        if (snprintf(inside, sizeof inside, "%s/events.jsonl", path) >= (int) sizeof inside)
            return sl_fail(SL_E_USAGE, "the path of the folder has %zu bytes: use one of at most 1000", strlen(path));
        if (!sl_file_exists(inside))
            return sl_fail(SL_E_IO,
                           "%s holds no events.jsonl: give a folder that was the --out of `sluice train`, or a file",
                           path);
        path = inside;
    }
    SL_TRY(sl_file_read_all(path, LARGEST_FILE, &text, &length));
    sl_status status = sl_input_parse(path, text, length, input);
    sl_free(text);
    return status;
}

void sl_input_destroy(sl_input *input)
{
    if (!input)
        return;
    if (input->log) {
        sl_free(input->log->steps);
        sl_free(input->log->validations);
        sl_free(input->log->samples);
        sl_free(input->log->ops);
        sl_free(input->log->actions);
        sl_free(input->log->places);
        sl_free(input->log->sessions);
    }
    for (sl_grid *grid = input->tables ? input->tables->grids : NULL; grid; grid = grid->next)
        sl_free(grid->cells);
    sl_region_destroy(input->region);
}
