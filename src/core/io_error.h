/* How the file functions fail, for those in core and for commands that open files themselves. */
#ifndef SL_CORE_IO_ERROR_H
#define SL_CORE_IO_ERROR_H

#include <stddef.h>

#include "core/fault.h"

/* "cannot <verb> <path>: <what errno means and what to do>". `more` is the bytes still to be written, 0 where that
 * makes no sense. */
sl_status sl_io_failed(const char *verb, const char *path, int error, size_t more);
/* open(2) with O_CLOEXEC, retried when interrupted, with its fault point. -1 and errno on failure. */
int sl_io_open(const char *path, int flags);
/* fsync of the folder that holds `path`, so that a name put there outlives a power cut. */
sl_status sl_io_sync_parent(const char *path);
/* All of the bytes at the file's position; -1 and errno on failure, *left then says how many were not written. */
int sl_io_write_all(int fd, const char *bytes, size_t length, size_t *left);

#endif
