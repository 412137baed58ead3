/* One line, one write(2), to a file opened for appending: a kill leaves at most one half line at the end, which the
 * next open cuts off. A line whose write failed is cut off at once, so later lines stay whole. Not fsynced: losing the
 * last lines of a log in a power cut is fine, stalling a step is not. One thread at a time. */
#include "core/events.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/io_error.h"

enum { LINE_BYTES = 16384 };

struct sl_events {
    char *path;
    int fd;
    int64_t size; /* all of it whole lines */
    double opened_s;
    sl_json_writer line;
};

/* Behind the last newline, looking backwards block by block. */
static int whole_lines(int fd, int64_t size, int64_t *out)
{
    char block[4096];
    while (size > 0) {
        int64_t start = SL_MAX(size - (int64_t) sizeof block, 0);
        ssize_t got = pread(fd, block, (size_t) (size - start), start);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != size - start) {
            errno = got < 0 ? errno : EIO;
            return -1;
        }
        for (; size > start; size--)
            if (block[size - start - 1] == '\n') {
                *out = size;
                return 0;
            }
    }
    *out = 0;
    return 0;
}

sl_status sl_events_open(const char *path, sl_events **out)
{
    sl_events *events;
    struct stat info;
    sl_status status;
    SL_TRY(sl_alloc(&events, 1, sizeof *events));
    events->fd = -1;
    events->opened_s = sl_clock_s();
    SL_TRY_GOTO(sl_strdup(path, &events->path), fail);
    /* Room for the longest usual line at once: steps must not allocate. */
    SL_TRY_GOTO(sl_alloc(&events->line.text.data, LINE_BYTES, 1), fail);
    events->line.text.capacity = LINE_BYTES;
    events->fd = sl_io_open(path, O_RDWR | O_CREAT | O_APPEND);
    if (events->fd < 0 || fstat(events->fd, &info) < 0 || whole_lines(events->fd, info.st_size, &events->size) < 0 ||
        (events->size != info.st_size && ftruncate(events->fd, events->size) < 0)) {
        status = sl_io_failed("write", path, errno, 0);
        goto fail;
    }
    *out = events;
    return SL_OK;
fail:
    sl_events_close(events);
    return status;
}

void sl_events_close(sl_events *events)
{
    if (!events)
        return;
    if (events->fd >= 0)
        close(events->fd);
    sl_text_free(&events->line.text);
    sl_free(events->path);
    sl_free(events);
}

/* Without a log the members go to a writer whose text has already failed: it drops them and allocates nothing. */
sl_json_writer *sl_events_begin(sl_events *events, const char *type)
{
    static _Thread_local sl_json_writer nowhere;
    sl_json_writer *line = events ? &events->line : &nowhere;
    line->depth = 0;
    line->need_comma = false;
    line->text.length = 0;
    line->text.failed = !events;
    sl_json_begin_object(line, NULL);
    sl_json_put_string(line, "event", type);
    sl_json_put_f64(line, "t", events ? sl_clock_s() - events->opened_s : 0);
    return line;
}

sl_status sl_events_end(sl_events *events)
{
    if (!events)
        return SL_OK;
    size_t left;
    sl_json_end_object(&events->line);
    SL_ASSERT(events->line.depth == 0);
    sl_text_append(&events->line.text, "\n", 1);
    SL_TRY(sl_text_status(&events->line.text));
    if (sl_io_write_all(events->fd, events->line.text.data, events->line.text.length, &left) < 0) {
        int error = errno;
        if (ftruncate(events->fd, events->size) < 0)
            error = errno;
        return sl_io_failed("write", events->path, error, left);
    }
    events->size += (int64_t) events->line.text.length;
    return SL_OK;
}
