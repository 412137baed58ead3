/* A disk that loses power: what a file system may keep of a process's writes when it is cut off at any call.
 *
 * This program's own open, write, fsync, rename, mkdir and remove stand before the C library's, pass the call on, and log it. At
 * the k-th call below the watched folder the process can be ended, as by SIGKILL, or the call can be made to fail. From the log
 * of what came before, crash_lose() then takes from the folder what no fsync had made durable:
 *
 *     bytes of a file               until fsync of the file
 *     names created and renamed     until fsync of the folders they are in
 *
 * POSIX lets any of these survive without the others, so every single loss is tried, none, and all together.
 * A removed name is taken as gone. */
#ifndef SL_TESTS_CRASH_DISK_H
#define SL_TESTS_CRASH_DISK_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test.h"

typedef enum crash_kind {
    CRASH_CREATE,
    CRASH_WRITE,
    CRASH_SYNC,
    CRASH_RENAME,
    CRASH_EXCHANGE, /* of two names */
    CRASH_MKDIR,
    CRASH_REMOVE,
} crash_kind;

typedef struct crash_call {
    crash_kind kind;
    bool durable;                        /* nothing of it can be lost any more */
    char path[400], to[400], saved[400]; /* to: of a rename; saved: what it replaced, or "" */
} crash_call;

enum { CRASH_CALLS = 1024, CRASH_EXIT = 99 };
enum { CRASH_LOSE_NOTHING = -1, CRASH_LOSE_ALL = -2 }; /* else: the call of that number alone */

/* Shared with the process that is ended. */
typedef struct crash_log {
    int64_t calls;
    crash_call list[CRASH_CALLS];
} crash_log;

static crash_log *crash; /* NULL: nothing is watched */
static char crash_root[300], crash_saved[300];
static int64_t crash_at; /* which call; 0: none */
static int crash_error;  /* it fails with this; 0: it ends the process */

static inline bool crash_watches(const char *path)
{
    return crash && strncmp(path, crash_root, strlen(crash_root)) == 0;
}

/* The entry of this call; NULL: it fails. */
static inline crash_call *crash_next(crash_kind kind, const char *path)
{
    if (crash->calls + 1 == crash_at) {
        if (!crash_error)
            _exit(CRASH_EXIT);
        crash_at = 0;
        errno = crash_error;
        return NULL;
    }
    if (crash->calls == CRASH_CALLS)
        abort();
    crash_call *call = &crash->list[crash->calls++];
    *call = (crash_call){.kind = kind};
    snprintf(call->path, sizeof call->path, "%s", path);
    return call;
}

static inline bool crash_path_of(int fd, char path[400])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 399);
    path[length > 0 ? length : 0] = 0;
    return crash_watches(path);
}

/* Seen by a shared libsluice too. */
#define CRASH_HOOK __attribute__((visibility("default")))
#define CRASH_REAL(name, type, ...)          \
    static type (*real)(__VA_ARGS__) = NULL; \
    if (!real)                               \
    *(void **) &real = dlsym(RTLD_NEXT, #name)

CRASH_HOOK int open(const char *path, int flags, ...)
{
    CRASH_REAL(open, int, const char *, int, ...);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if ((flags & O_CREAT) && crash_watches(path) && access(path, F_OK) != 0 && !crash_next(CRASH_CREATE, path))
        return -1;
    return real(path, flags, mode);
}

CRASH_HOOK ssize_t write(int fd, const void *bytes, size_t length)
{
    CRASH_REAL(write, ssize_t, int, const void *, size_t);
    char path[400];
    if (crash && crash_path_of(fd, path) && !crash_next(CRASH_WRITE, path))
        return -1;
    return real(fd, bytes, length);
}

CRASH_HOOK int fsync(int fd)
{
    CRASH_REAL(fsync, int, int);
    char path[400];
    if (crash && crash_path_of(fd, path) && !crash_next(CRASH_SYNC, path))
        return -1;
    return crash ? 0 : real(fd);
}

CRASH_HOOK int rename(const char *from, const char *to)
{
    CRASH_REAL(rename, int, const char *, const char *);
    if (crash_watches(from)) {
        struct stat info;
        crash_call *call = crash_next(CRASH_RENAME, from);
        if (!call)
            return -1;
        snprintf(call->to, sizeof call->to, "%s", to);
        if (lstat(to, &info) == 0 && S_ISREG(info.st_mode)) {
            snprintf(call->saved, sizeof call->saved, "%s/%" PRId64, crash_saved, crash->calls);
            if (link(to, call->saved) != 0)
                abort();
        }
    }
    return real(from, to);
}

CRASH_HOOK int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    CRASH_REAL(renameat2, int, int, const char *, int, const char *, unsigned);
    if (crash_watches(from)) {
        crash_call *call = crash_next(CRASH_EXCHANGE, from);
        if (!call)
            return -1;
        if (flags != RENAME_EXCHANGE)
            abort();
        snprintf(call->to, sizeof call->to, "%s", to);
    }
    return real(from_folder, from, to_folder, to, flags);
}

CRASH_HOOK int mkdir(const char *path, mode_t mode)
{
    CRASH_REAL(mkdir, int, const char *, mode_t);
    if (crash_watches(path) && access(path, F_OK) != 0 && !crash_next(CRASH_MKDIR, path))
        return -1;
    return real(path, mode);
}

CRASH_HOOK int remove(const char *path)
{
    CRASH_REAL(remove, int, const char *);
    if (crash_watches(path) && !crash_next(CRASH_REMOVE, path))
        return -1;
    return real(path);
}

/* ---- what is lost ---- */

static inline bool crash_is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static inline void crash_move(char path[400], const char *from, const char *to)
{
    char rest[400];
    snprintf(rest, sizeof rest, "%s", path + strlen(from));
    snprintf(path, 400, "%s%s", to, rest);
}

static inline bool crash_is_in(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return crash_is_below(path, folder) && path[length] && !strchr(path + length + 1, '/');
}

/* One call after the other: earlier ones follow renames, and an fsync makes them durable. */
static inline void crash_settle(void)
{
    for (int64_t i = 0; i < crash->calls; i++) {
        const crash_call *now = &crash->list[i];
        for (int64_t j = 0; j < i; j++) {
            crash_call *past = &crash->list[j];
            bool bytes = past->kind == CRASH_WRITE;
            char *place = past->kind == CRASH_RENAME || past->kind == CRASH_EXCHANGE ? past->to : past->path;
            if (now->kind == CRASH_SYNC && (bytes ? strcmp(place, now->path) == 0 : crash_is_in(place, now->path)))
                past->durable = true;
            if (now->kind == CRASH_REMOVE && crash_is_below(place, now->path))
                past->durable = true; /* nothing left to lose */
            bool renames = now->kind == CRASH_RENAME || now->kind == CRASH_EXCHANGE;
            if (renames && !bytes && strcmp(place, now->path) == 0)
                past->durable = true; /* the later name is the one to lose */
            if (renames && crash_is_below(place, now->path))
                crash_move(place, now->path, now->to);
            else if (now->kind == CRASH_EXCHANGE && crash_is_below(place, now->to))
                crash_move(place, now->to, now->path);
            if (renames && past->kind == CRASH_RENAME && crash_is_below(past->path, now->path))
                crash_move(past->path, now->path, now->to);
        }
    }
}

static inline void crash_lose_call(const crash_call *call)
{
    char command[900];
    struct stat info;
    switch (call->kind) {
    case CRASH_WRITE:
        if (lstat(call->path, &info) == 0)
            CHECK(truncate(call->path, 0) == 0);
        break;
    case CRASH_CREATE:
        unlink(call->path);
        break;
    case CRASH_MKDIR:
        snprintf(command, sizeof command, "rm -rf '%s'", call->path);
        CHECK(system(command) == 0);
        break;
    case CRASH_RENAME:
        rename(call->to, call->path);
        if (call->saved[0])
            CHECK(link(call->saved, call->to) == 0);
        break;
    case CRASH_EXCHANGE:
        CHECK(renameat2(AT_FDCWD, call->to, AT_FDCWD, call->path, RENAME_EXCHANGE) == 0);
        break;
    case CRASH_SYNC:
    case CRASH_REMOVE:
        break;
    }
}

static inline void crash_begin(const char *root)
{
    char command[900];
    crash = mmap(NULL, sizeof *crash, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(crash != MAP_FAILED);
    snprintf(crash_root, sizeof crash_root, "%s", root);
    snprintf(crash_saved, sizeof crash_saved, "%s.saved", root);
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir -p '%s'", crash_saved, crash_saved);
    CHECK(system(command) == 0);
}

static inline void crash_end(void)
{
    munmap(crash, sizeof *crash);
    crash = NULL;
    crash_at = 0;
}

typedef void (*crash_prepare)(void *context); /* makes the root as it is before */
typedef int (*crash_work)(void *context);     /* 0: it says that it has succeeded */
typedef void (*crash_check)(void *context, bool succeeded, const char *what);

/* Runs `work` in a process that is ended at call `at` (0: never), takes away what `loss` says and checks. Returns the number of
 * calls; `can_lose` (CRASH_CALLS, may be NULL) tells which of them could be lost. */
static inline int64_t crash_once(const char *root, int64_t at, int64_t loss, crash_prepare prepare, crash_work work,
                                 crash_check check, void *context, bool *can_lose)
{
    char what[200];
    int status = 0;
    prepare(context);
    crash_begin(root);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        crash_at = at;
        crash_error = 0;
        _exit(work(context));
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_MSG(WEXITSTATUS(status) == (at ? CRASH_EXIT : 0), "exit status %d at call %" PRId64, WEXITSTATUS(status), at);
    crash_settle();
    crash_log *log = crash;
    crash = NULL; /* what is done from here is not the process's */
    for (int64_t i = log->calls - 1; i >= 0; i--) {
        const crash_call *call = &log->list[i];
        bool can = !call->durable && call->kind != CRASH_SYNC && call->kind != CRASH_REMOVE;
        bool lost = loss == CRASH_LOSE_ALL || loss == i;
        if (can_lose)
            can_lose[i] = can;
        if (can && lost)
            crash_lose_call(call);
    }
    int64_t calls = log->calls;
    if (loss >= 0)
        snprintf(what, sizeof what, "ended at call %" PRId64 ", %s lost", at, log->list[loss].path);
    else
        snprintf(what, sizeof what, "ended at call %" PRId64 ", loss %" PRId64, at, loss);
    check(context, WEXITSTATUS(status) == 0, what);
    crash = log;
    crash_end();
    return calls;
}

/* Ends it at every call, and after the last one, with every loss. */
static inline void crash_everywhere(const char *root, crash_prepare prepare, crash_work work, crash_check check,
                                    void *context)
{
    static bool can_lose[CRASH_CALLS];
    int64_t calls = crash_once(root, 0, CRASH_LOSE_NOTHING, prepare, work, check, context, NULL), losses = 0;
    CHECK(calls > 3);
    for (int64_t at = 0; at <= calls; at++) {
        int64_t before = crash_once(root, at, CRASH_LOSE_NOTHING, prepare, work, check, context, can_lose);
        int64_t could = 0;
        for (int64_t i = 0; i < before; i++)
            if (can_lose[i]) {
                crash_once(root, at, i, prepare, work, check, context, NULL);
                could++;
            }
        if (could > 1)
            crash_once(root, at, CRASH_LOSE_ALL, prepare, work, check, context, NULL);
        losses += could;
    }
    CHECK(losses > 3);
    printf("     %" PRId64 " calls, %" PRId64 " single losses\n", calls, losses);
}

/* Every call fails in turn, once: the process goes on. */
static inline void crash_failing_everywhere(const char *root, int error, crash_prepare prepare, crash_work work,
                                            crash_check check, void *context)
{
    int64_t at = 1;
    for (bool came = true; came; at++) {
        char what[100];
        prepare(context);
        crash_begin(root);
        crash_at = at;
        crash_error = error;
        bool succeeded = work(context) == 0;
        came = crash_at == 0;
        crash_end();
        snprintf(what, sizeof what, "call %" PRId64 " fails with %d", at, error);
        check(context, succeeded, what);
        CHECK(came || succeeded);
    }
    CHECK(at > 4);
}

#endif
