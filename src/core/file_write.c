/* Writing so that a reader sees the old file or the whole new one, also across a kill or a power cut:
 *
 *     write path.tmp ── fsync ── rename over path ── fsync the folder
 *
 * The fsync before the rename matters: without it the new name may reach the disk before the bytes do. A writer that
 * has failed stays failed, so a commit after a swallowed error cannot publish a file with a hole. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/io_error.h"
#include "core/text.h"

enum { BUFFER_BYTES = 1 << 20 };

struct sl_writer {
    char *path, *temporary;
    char *buffer;
    size_t used;
    int fd;
    bool exists; /* the temporary is on disk */
    sl_status failed;
    sl_hasher hasher;
};

sl_status sl_io_failed(const char *verb, const char *path, int error, size_t more)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        if (more)
            return sl_fail(
                SL_E_IO,
                "cannot %s %s: no space left on device (needs %zu more bytes); free some space or use another --out",
                verb, path, more);
        return sl_fail(SL_E_IO, "cannot %s %s: no space left on device; free some space or use another --out", verb,
                       path);
    case EFBIG:
        return sl_fail(SL_E_IO, "cannot %s %s: larger than the largest file allowed here; raise ulimit -f", verb, path);
    case EACCES:
    case EPERM:
        return sl_fail(SL_E_IO, "cannot %s %s: no permission; check its owner and mode, or use another path", verb,
                       path);
    case EROFS:
        return sl_fail(SL_E_IO, "cannot %s %s: the file system is read-only; use another path", verb, path);
    case ENOENT:
        return sl_fail(SL_E_IO, "cannot %s %s: no such file or folder; check the path", verb, path);
    case ENOTDIR:
        return sl_fail(SL_E_IO, "cannot %s %s: a part of the path is a file, not a folder", verb, path);
    case EISDIR:
        return sl_fail(SL_E_IO, "cannot %s %s: it is a folder, not a file", verb, path);
    case EMFILE:
    case ENFILE:
        return sl_fail(SL_E_IO, "cannot %s %s: too many open files; raise ulimit -n", verb, path);
    case EIO:
        return sl_fail(SL_E_IO, "cannot %s %s: the disk reports an error; check it, or use another path", verb, path);
    default:
        return sl_fail(SL_E_IO, "cannot %s %s: %s", verb, path, strerror(error));
    }
}

int sl_io_open(const char *path, int flags)
{
    if (sl_fault_hit(SL_FAULT_OPEN)) {
        errno = EACCES;
        return -1;
    }
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int sl_io_write_all(int fd, const char *bytes, size_t length, size_t *left)
{
    *left = length;
    while (*left) {
        ssize_t wrote = -1;
        if (sl_fault_hit(SL_FAULT_WRITE))
            errno = ENOSPC;
        else
            wrote = write(fd, bytes + (length - *left), SL_MIN(*left, (size_t) 1 << 30));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote == 0)
            errno = ENOSPC;
        if (wrote <= 0)
            return -1;
        *left -= (size_t) wrote;
    }
    return 0;
}

static int sync_fd(int fd)
{
    if (sl_fault_hit(SL_FAULT_SYNC)) {
        errno = EIO;
        return -1;
    }
    int result;
    do
        result = fsync(fd);
    while (result < 0 && errno == EINTR);
    return result;
}

sl_status sl_io_sync_parent(const char *path)
{
    char *folder;
    SL_TRY(sl_strdup(path, &folder));
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    while (length > 0 && folder[length - 1] != '/')
        length--;
    folder[length] = 0;
    const char *name = length ? folder : ".";
    sl_status status = SL_OK;
    int fd = sl_io_open(name, O_RDONLY | O_DIRECTORY);
    /* Some file systems cannot sync a folder and say so with EINVAL: there is nothing more to do then. */
    if (fd < 0 || (sync_fd(fd) < 0 && errno != EINVAL))
        status = sl_io_failed("sync the folder", name, errno, 0);
    if (fd >= 0)
        close(fd);
    sl_free(folder);
    return status;
}

static sl_status rename_file(const char *from, const char *to)
{
    int error = sl_fault_hit(SL_FAULT_RENAME) ? EIO : rename(from, to) == 0 ? 0 : errno;
    if (error == ENOTEMPTY || error == EEXIST)
        return sl_fail(SL_E_IO,
                       "cannot rename %s to %s: a folder of that name exists and is not empty; remove it first", from,
                       to);
    if (error) {
        sl_io_failed("rename", from, error, 0);
        return sl_fail(SL_E_IO, "%s (the new name was to be %s)", sl_error_message(), to);
    }
    return SL_OK;
}

/* Unlike a file's commit this may change two folders. */
sl_status sl_rename_durable(const char *from, const char *to)
{
    SL_TRY(rename_file(from, to));
    SL_TRY(sl_io_sync_parent(to));
    return sl_io_sync_parent(from);
}

sl_status sl_exchange_durable(const char *from, const char *to, bool *done)
{
    *done = false;
    int error = sl_fault_hit(SL_FAULT_RENAME)                                   ? EIO
                : renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0 ? 0
                                                                                : errno;
    if (error == EINVAL || error == ENOSYS)
        return SL_OK;
    if (error)
        return sl_io_failed("exchange names with", to, error, 0);
    *done = true;
    SL_TRY(sl_io_sync_parent(to));
    return sl_io_sync_parent(from);
}

/* A rename would put the new file in the place of a link or a device: a link's target is what is meant, and a device is not. */
static sl_status find_target(const char *path, char **target)
{
    struct stat there;
    char real[PATH_MAX];
    if (lstat(path, &there) != 0 || S_ISREG(there.st_mode) || S_ISDIR(there.st_mode))
        return sl_strdup(path, target);
    if (S_ISLNK(there.st_mode) && realpath(path, real) && stat(real, &there) == 0 && S_ISREG(there.st_mode))
        return sl_strdup(real, target);
    return sl_fail(SL_E_IO, "cannot write %s: it is there already and no regular file; use another path", path);
}

sl_status sl_writer_open(const char *path, sl_writer **out)
{
    sl_writer *writer;
    sl_status status;
    SL_TRY(sl_alloc(&writer, 1, sizeof *writer));
    writer->fd = -1;
    SL_TRY_GOTO(find_target(path, &writer->path), fail);
    size_t length = strlen(writer->path);
    SL_TRY_GOTO(sl_alloc(&writer->temporary, length + 5, 1), fail);
    SL_TRY_GOTO(sl_alloc_aligned(&writer->buffer, BUFFER_BYTES, 1, 4096), fail);
    memcpy(writer->temporary, writer->path, length);
    memcpy(writer->temporary + length, ".tmp", 5);
    writer->fd = sl_io_open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (writer->fd < 0) {
        status = sl_io_failed("write", path, errno, 0);
        goto fail;
    }
    writer->exists = true;
    sl_hash_begin(&writer->hasher, 0);
    *out = writer;
    return SL_OK;
fail:
    sl_writer_destroy(writer);
    return status;
}

static sl_status put(sl_writer *writer, const char *bytes, size_t length)
{
    size_t left;
    if (sl_io_write_all(writer->fd, bytes, length, &left) < 0)
        writer->failed = sl_io_failed("write", writer->path, errno, left);
    return writer->failed;
}

static sl_status flush(sl_writer *writer)
{
    size_t used = writer->used;
    writer->used = 0;
    return put(writer, writer->buffer, used);
}

/* A failed writer says so again: the first message may have been replaced since. */
static sl_status still_good(sl_writer *writer)
{
    if (writer->failed != SL_OK)
        return sl_fail(writer->failed, "cannot write %s: an earlier write to it failed", writer->path);
    return SL_OK;
}

sl_status sl_writer_write(sl_writer *writer, const void *bytes, size_t length)
{
    SL_TRY(still_good(writer));
    const char *at = bytes;
    sl_hash_add(&writer->hasher, at, length);
    if (writer->used + length > BUFFER_BYTES)
        SL_TRY(flush(writer));
    if (length >= BUFFER_BYTES)
        return put(writer, at, length); /* large pieces need no copy */
    if (length)
        memcpy(writer->buffer + writer->used, at, length);
    writer->used += length;
    return SL_OK;
}

uint64_t sl_writer_checksum(const sl_writer *writer)
{
    return sl_hash_end(&writer->hasher);
}

sl_status sl_writer_commit(sl_writer *writer)
{
    SL_ASSERT(writer->fd >= 0);
    SL_TRY(still_good(writer));
    SL_TRY(flush(writer));
    if (sync_fd(writer->fd) < 0)
        return writer->failed = sl_io_failed("write", writer->path, errno, 0);
    int closed = close(writer->fd);
    writer->fd = -1;
    if (closed < 0)
        return writer->failed = sl_io_failed("write", writer->path, errno, 0);
    writer->failed = rename_file(writer->temporary, writer->path);
    SL_TRY(writer->failed);
    writer->exists = false;
    return sl_io_sync_parent(writer->path);
}

void sl_writer_destroy(sl_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->exists)
        unlink(writer->temporary);
    sl_free(writer->buffer);
    sl_free(writer->temporary);
    sl_free(writer->path);
    sl_free(writer);
}

sl_status sl_file_write_atomic(const char *path, const void *bytes, size_t length)
{
    sl_writer *writer;
    sl_status status;
    SL_TRY(sl_writer_open(path, &writer));
    SL_TRY_GOTO(sl_writer_write(writer, bytes, length), done);
    status = sl_writer_commit(writer);
done:
    sl_writer_destroy(writer);
    return status;
}
