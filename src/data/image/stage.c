/* The source is listed first: what is missing has to fit before anything is copied, and the order of the list makes the hash. */
#include "data/image/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/io_error.h"

enum { PATH = 8192, MOST_DEPTH = 32, PIECE = 1 << 18, MARKER = 256 };

typedef struct item {
    const char *name; /* from the folder on */
    int64_t bytes;
    struct timespec changed;
    bool copy;
} item;

typedef struct staging {
    const char *from, *to;
    sl_region *region;
    item *items;
    int64_t count, capacity, bytes;
    pthread_mutex_t lock;
    int64_t failed; /* the first item that could not be copied; INT64_MAX: none */
    sl_status status;
    char message[512];
} staging;

static sl_status join(char path[PATH], const char *folder, const char *name)
{
    if (snprintf(path, PATH, "%s%s%s", folder, name[0] ? "/" : "", name) >= PATH)
        return sl_fail(SL_E_FORMAT, "%s/%s: the path is longer than %d bytes", folder, name, PATH);
    return SL_OK;
}

static sl_status add_item(staging *s, const char *name, const struct stat *info)
{
    if (s->count == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 256;
        SL_TRY(sl_grow(&s->items, s->count, capacity, sizeof *s->items));
        s->capacity = capacity;
    }
    s->items[s->count++] = (item){name, info->st_size, info->st_mtim, false};
    s->bytes += info->st_size;
    return SL_OK;
}

/* Files below from/within, in byte order, and their folders in the copy. */
static sl_status list_files(staging *s, const char *within, int depth)
{
    char folder[PATH], path[PATH];
    const char **names;
    int64_t count;
    if (depth > MOST_DEPTH)
        return sl_fail(SL_E_FORMAT, "%s/%s: folders are more than %d deep", s->from, within, MOST_DEPTH);
    SL_TRY(join(folder, s->to, within));
    SL_TRY(sl_dir_create(folder));
    SL_TRY(join(folder, s->from, within));
    SL_TRY(sl_dir_list(s->region, folder, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        struct stat info;
        const char *name;
        if (names[i][0] == '.')
            continue;
        SL_TRY(join(path, folder, names[i]));
        if (stat(path, &info) < 0)
            return sl_io_failed("read", path, errno, 0);
        SL_TRY(sl_region_printf(s->region, &name, "%s%s%s", within, within[0] ? "/" : "", names[i]));
        if (S_ISDIR(info.st_mode))
            SL_TRY(list_files(s, name, depth + 1));
        else if (S_ISREG(info.st_mode))
            SL_TRY(add_item(s, name, &info));
    }
    return SL_OK;
}

static void describe(const staging *s, char marker[MARKER])
{
    sl_hasher hasher;
    sl_hash_begin(&hasher, 0);
    for (int64_t i = 0; i < s->count; i++) {
        const item *it = &s->items[i];
        int64_t numbers[3] = {it->bytes, it->changed.tv_sec, it->changed.tv_nsec};
        sl_hash_add(&hasher, it->name, strlen(it->name) + 1);
        sl_hash_add(&hasher, numbers, sizeof numbers);
    }
    snprintf(marker, MARKER, "%" PRId64 " files, %" PRId64 " bytes, %016" PRIx64 "\n", s->count, s->bytes,
             sl_hash_end(&hasher));
}

/* Whether a file of the copy holds exactly this text. */
static bool holds(const staging *s, const char *name, const char *text)
{
    char path[PATH], *content;
    size_t length;
    if (join(path, s->to, name) != SL_OK || !sl_file_exists(path) ||
        sl_file_read_all(path, MARKER, &content, &length) != SL_OK)
        return false;
    bool same = length == strlen(text) && memcmp(content, text, length) == 0;
    sl_free(content);
    return same;
}

/* Changes with every start of the machine; empty where the system has none, and then nothing partial is trusted. */
static void start_of_machine(char text[MARKER])
{
    char *content;
    size_t length;
    text[0] = 0;
    if (sl_file_read_all("/proc/sys/kernel/random/boot_id", MARKER - 1, &content, &length) != SL_OK)
        return;
    snprintf(text, MARKER, "%s", content);
    sl_free(content);
}

static int64_t mark_missing(staging *s, bool trusted)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->count; i++) {
        item *it = &s->items[i];
        char path[PATH];
        struct stat info;
        bool there = trusted && join(path, s->to, it->name) == SL_OK && stat(path, &info) == 0 &&
                     info.st_size == it->bytes && info.st_mtim.tv_sec == it->changed.tv_sec &&
                     info.st_mtim.tv_nsec == it->changed.tv_nsec;
        it->copy = !there;
        bytes += there ? 0 : it->bytes;
    }
    return bytes;
}

static sl_status check_space(const staging *s, int64_t bytes, int64_t reserve)
{
    struct statvfs info;
    if (statvfs(s->to, &info) < 0)
        return sl_io_failed("read", s->to, errno, 0);
    int64_t free_bytes = (int64_t) info.f_bavail * (int64_t) info.f_frsize;
    if (bytes > free_bytes - reserve)
        return sl_fail(
            SL_E_DOES_NOT_FIT,
            "staging %s needs %.1f GB and %.1f GB that stay free, but %s has %.1f GB: choose another folder, or train "
            "from the source",
            s->from, (double) bytes / 1e9, (double) reserve / 1e9, s->to, (double) free_bytes / 1e9);
    return SL_OK;
}

static sl_status copy_bytes(int in, int out, const char *from, const char *to, int64_t bytes)
{
    char *piece;
    sl_status status = SL_OK;
    SL_TRY(sl_alloc(&piece, PIECE, 1));
    for (int64_t left = bytes; left > 0;) {
        ssize_t got = read(in, piece, (size_t) SL_MIN(left, PIECE));
        size_t unwritten = 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            SL_TRY_GOTO(sl_io_failed("read", from, errno, 0), done);
        if (got == 0)
            SL_TRY_GOTO(sl_fail(SL_E_IO, "%s became shorter while it was copied", from), done);
        if (sl_io_write_all(out, piece, (size_t) got, &unwritten) < 0)
            SL_TRY_GOTO(sl_io_failed("write", to, errno, (size_t) left), done);
        left -= got;
    }
done:
    sl_free(piece);
    return status;
}

/* Under another name until it is whole. */
static sl_status copy_file(const staging *s, const item *it)
{
    char from[PATH], to[PATH], part[PATH];
    const struct timespec times[2] = {it->changed, it->changed};
    sl_status status;
    int out = -1;
    SL_TRY(join(from, s->from, it->name));
    SL_TRY(join(to, s->to, it->name));
    if (snprintf(part, sizeof part, "%s.part", to) >= PATH)
        return sl_fail(SL_E_FORMAT, "%s: the path is longer than %d bytes", to, PATH);
    int in = sl_io_open(from, O_RDONLY);
    if (in < 0)
        return sl_io_failed("read", from, errno, 0);
    out = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0)
        SL_TRY_GOTO(sl_io_failed("write", part, errno, (size_t) it->bytes), done);
    SL_TRY_GOTO(copy_bytes(in, out, from, part, it->bytes), done);
    if (futimens(out, times) < 0 || rename(part, to) < 0)
        status = sl_io_failed("write", to, errno, 0);
done:
    close(in);
    if (out >= 0)
        close(out);
    return status;
}

static void copy_one(void *context, int64_t tile, int thread)
{
    staging *s = context;
    (void) thread;
    sl_status status = s->items[tile].copy ? copy_file(s, &s->items[tile]) : SL_OK;
    if (status == SL_OK)
        return;
    pthread_mutex_lock(&s->lock);
    if (tile < s->failed) {
        s->failed = tile;
        s->status = status;
        snprintf(s->message, sizeof s->message, "%s", sl_error_message());
    }
    pthread_mutex_unlock(&s->lock);
}

/* All of the copy reaches the disk before the marker does. */
static sl_status sync_all(const staging *s)
{
    int fd = sl_io_open(s->to, O_RDONLY | O_DIRECTORY);
    int error = fd < 0 || syncfs(fd) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error ? sl_io_failed("write", s->to, error, 0) : SL_OK;
}

static sl_status write_text(const staging *s, const char *name, const char *text)
{
    char path[PATH];
    SL_TRY(join(path, s->to, name));
    return sl_file_write_atomic(path, text, strlen(text));
}

static sl_status stage(staging *s, int64_t reserve, sl_pool *pool, sl_stage_result *result)
{
    char marker[MARKER], machine[MARKER], path[PATH];
    SL_TRY(list_files(s, "", 0));
    if (s->count == 0)
        return sl_fail(SL_E_USAGE, "%s holds no files to stage", s->from);
    describe(s, marker);
    *result = (sl_stage_result){.files = s->count, .bytes = s->bytes};
    if (holds(s, ".staged", marker))
        return SL_OK;
    start_of_machine(machine);
    bool complete_once = false; /* a source that changed: what is there was whole */
    SL_TRY(join(path, s->to, ".staged"));
    complete_once = sl_file_exists(path);
    int64_t missing = mark_missing(s, complete_once || (machine[0] && holds(s, ".staging", machine)));
    SL_TRY(check_space(s, missing, reserve));
    SL_TRY(write_text(s, ".staging", machine));
    if (complete_once && unlink(path) < 0)
        return sl_io_failed("remove", path, errno, 0);
    sl_pool_run(pool, copy_one, s, s->count);
    if (s->status != SL_OK)
        return sl_fail(s->status, "%s", s->message);
    SL_TRY(sync_all(s));
    SL_TRY(write_text(s, ".staged", marker));
    for (int64_t i = 0; i < s->count; i++)
        result->copied_files += s->items[i].copy;
    result->copied_bytes = missing;
    return SL_OK;
}

sl_status sl_stage_folder(const char *from, const char *to, int64_t reserve, sl_pool *pool, sl_stage_result *result)
{
    staging s = {.from = from, .to = to, .failed = INT64_MAX};
    if (!sl_dir_exists(from))
        return sl_fail(SL_E_USAGE, "%s is no folder to stage", from);
    SL_TRY(sl_region_create(&s.region));
    pthread_mutex_init(&s.lock, NULL);
    sl_status status = stage(&s, reserve, pool, result);
    pthread_mutex_destroy(&s.lock);
    sl_free(s.items);
    sl_region_destroy(s.region);
    return status;
}
