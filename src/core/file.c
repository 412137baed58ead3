/* Reading files and walking folders. What a file claims about itself (its size, too) is checked against what arrives.
 */
#include "core/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io_error.h"

/* ---- whole files ---- */

static ssize_t read_some(int fd, void *out, size_t bytes, int64_t offset)
{
    if (sl_fault_hit(SL_FAULT_READ)) {
        errno = EIO;
        return -1;
    }
    ssize_t got;
    bytes = SL_MIN(bytes, (size_t) 1 << 30);
    do
        got = offset < 0 ? read(fd, out, bytes) : pread(fd, out, bytes, offset);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Opens what can be read as a file. Opening a FIFO waits for a writer, and some devices never end: O_NONBLOCK lets the
 * open return (on a regular file it has no effect), and everything but a regular file is refused. */
static sl_status open_regular(const char *path, int *out, int64_t *size)
{
    struct stat info;
    sl_status status;
    int fd = sl_io_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) < 0)
        status = sl_io_failed("read", path, errno, 0);
    else if (S_ISDIR(info.st_mode))
        status = sl_io_failed("read", path, EISDIR, 0);
    else if (!S_ISREG(info.st_mode))
        status = sl_fail(SL_E_IO, "cannot read %s: it is a %s, not a regular file; use another path", path,
                         S_ISFIFO(info.st_mode)   ? "named pipe (FIFO)"
                         : S_ISSOCK(info.st_mode) ? "socket"
                                                  : "device");
    else {
        *out = fd, *size = info.st_size;
        return SL_OK;
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* Reads to the end rather than to the size: the file may grow, and files of /proc have no size. */
static sl_status read_to_end(int fd, const char *path, size_t limit, size_t expected, char **out, size_t *length)
{
    size_t capacity = SL_MIN(expected, limit) + 2, used = 0; /* one to see more than expected, one for the NUL */
    char *bytes;
    sl_status status;
    SL_TRY(sl_alloc(&bytes, capacity, 1));
    for (;;) {
        ssize_t got = read_some(fd, bytes + used, capacity - 1 - used, -1);
        if (got < 0) {
            status = sl_io_failed("read", path, errno, 0);
            goto fail;
        }
        used += (size_t) got;
        if (used > limit) {
            status = sl_fail(SL_E_FORMAT, "%s is larger than the %zu bytes such a file may have", path, limit);
            goto fail;
        }
        if (got == 0)
            break;
        if (used == capacity - 1) {
            SL_TRY_GOTO(sl_grow(&bytes, capacity, capacity * 2, 1), fail);
            capacity *= 2;
        }
    }
    bytes[used] = 0;
    *out = bytes, *length = used;
    return SL_OK;
fail:
    sl_free(bytes);
    return status;
}

sl_status sl_file_read_all(const char *path, size_t limit, char **out, size_t *length)
{
    int fd;
    int64_t size;
    SL_TRY(open_regular(path, &fd, &size));
    sl_status status = read_to_end(fd, path, limit, (size_t) size, out, length);
    close(fd);
    return status;
}

sl_status sl_file_size(const char *path, int64_t *out)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return sl_io_failed("read", path, errno, 0);
    *out = info.st_size;
    return SL_OK;
}

bool sl_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool sl_dir_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ---- random access ---- */

struct sl_reader {
    char *path;
    int fd;
    int64_t size;
};

sl_status sl_reader_open(const char *path, sl_reader **out)
{
    sl_reader *reader;
    sl_status status;
    SL_TRY(sl_alloc(&reader, 1, sizeof *reader));
    reader->fd = -1;
    SL_TRY_GOTO(sl_strdup(path, &reader->path), fail);
    SL_TRY_GOTO(open_regular(path, &reader->fd, &reader->size), fail);
    *out = reader;
    return SL_OK;
fail:
    sl_reader_close(reader);
    return status;
}

void sl_reader_close(sl_reader *reader)
{
    if (!reader)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    sl_free(reader->path);
    sl_free(reader);
}

int64_t sl_reader_size(const sl_reader *reader)
{
    return reader->size;
}

static sl_status too_short(const sl_reader *reader, int64_t offset, size_t bytes, int64_t end)
{
    return sl_fail(SL_E_FORMAT,
                   "%s ends at byte %lld, but %zu bytes at offset %lld are needed; the file is cut short or damaged",
                   reader->path, (long long) end, bytes, (long long) offset);
}

sl_status sl_reader_read(sl_reader *reader, int64_t offset, void *out, size_t bytes)
{
    if (offset < 0 || offset > reader->size || bytes > (uint64_t) (reader->size - offset))
        return too_short(reader, offset, bytes, reader->size);
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read_some(reader->fd, (char *) out + done, bytes - done, offset + (int64_t) done);
        if (got < 0)
            return sl_io_failed("read", reader->path, errno, 0);
        if (got == 0) /* it shrank since it was opened */
            return too_short(reader, offset, bytes, offset + (int64_t) done);
        done += (size_t) got;
    }
    return SL_OK;
}

/* ---- folders ---- */

/* What is written into a new folder is only as durable as the folder's own name. */
static sl_status create_one(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return sl_io_sync_parent(path);
    if (errno == EEXIST && sl_dir_exists(path))
        return SL_OK;
    if (errno == EEXIST)
        return sl_fail(SL_E_IO, "cannot create the folder %s: a file of that name exists", path);
    return sl_io_failed("create the folder", path, errno, 0);
}

sl_status sl_dir_create(const char *path)
{
    char *prefix;
    sl_status status = SL_OK;
    if (!path[0])
        return sl_fail(SL_E_IO, "cannot create a folder without a name");
    if (sl_dir_exists(path))
        return SL_OK;
    SL_TRY(sl_strdup(path, &prefix));
    for (char *at = prefix + 1; status == SL_OK && *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        status = create_one(prefix);
        *at = '/';
    }
    if (status == SL_OK)
        status = create_one(prefix);
    sl_free(prefix);
    return status;
}

/* The last component, slashes at the end aside. */
static bool is_safe_to_remove(const char *path)
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    size_t length = end - start;
    bool dots = (length == 1 && path[start] == '.') || (length == 2 && path[start] == '.' && path[start + 1] == '.');
    return length > 0 && !dots;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void) info, (void) kind, (void) place;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Depth first and without following links: a link to another folder is removed, not what it points to. */
sl_status sl_dir_remove(const char *path)
{
    if (!is_safe_to_remove(path))
        return sl_fail(SL_E_IO, "will not remove the folder \"%s\"", path);
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return sl_io_failed("remove", path, errno, 0);
    return SL_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *) a, *(const char *const *) b);
}

typedef struct name_list {
    const char **names;
    int64_t count, capacity;
} name_list;

static sl_status add_entry(sl_region *region, name_list *list, const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return SL_OK;
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? list->capacity * 2 : 64;
        SL_TRY(sl_grow(&list->names, list->count, capacity, sizeof *list->names));
        list->capacity = capacity;
    }
    SL_TRY(sl_region_strdup(region, name, &list->names[list->count]));
    list->count++;
    return SL_OK;
}

sl_status sl_dir_list(sl_region *region, const char *path, const char ***names, int64_t *count)
{
    name_list list = {.names = NULL};
    sl_status status = SL_OK;
    DIR *folder = sl_fault_hit(SL_FAULT_OPEN) ? (errno = EACCES, (DIR *) NULL) : opendir(path);
    if (!folder)
        return sl_io_failed("list the folder", path, errno, 0);
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (!entry) {
            if (errno)
                status = sl_io_failed("list the folder", path, errno, 0);
            break;
        }
        SL_TRY_GOTO(add_entry(region, &list, entry->d_name), done);
    }
    if (status == SL_OK && list.count)
        qsort(list.names, (size_t) list.count, sizeof *list.names, compare_names);
    const char **kept = NULL;
    if (status == SL_OK)
        SL_TRY_GOTO(sl_region_alloc(region, &kept, list.count, sizeof *kept), done);
    if (status == SL_OK) {
        if (list.count)
            memcpy(kept, list.names, (size_t) list.count * sizeof *kept);
        *names = kept, *count = list.count;
    }
done:
    sl_free(list.names);
    closedir(folder);
    return status;
}
