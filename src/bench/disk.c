#include "bench/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "bench/disk_kind.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/rng.h"

enum { PIECE = 4 << 20, SMALL = 4096, MOST_READERS = 16, MOST_SMALL = 20000 };

static sl_status io_failed(const char *what, const char *path)
{
    return sl_fail(SL_E_IO, "cannot %s %s: %s; name a folder with room by --disk, or give --disk none", what, path,
                   strerror(errno));
}

static sl_status write_file(const char *path, size_t bytes, unsigned char *buffer, double *rate)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return io_failed("create", path);
    double start = sl_clock_s();
    sl_status status = SL_OK;
    for (size_t done = 0; done < bytes && status == SL_OK; done += PIECE)
        if (write(fd, buffer, PIECE) != PIECE)
            status = io_failed("write to", path);
    if (status == SL_OK && fdatasync(fd) != 0)
        status = io_failed("flush", path);
    *rate = (double) bytes / (sl_clock_s() - start);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return status;
}

static int open_for_reading(const char *path, bool *direct)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    *direct = fd >= 0;
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd;
}

static sl_status read_file(const char *path, size_t bytes, unsigned char *buffer, sl_disk_rates *r)
{
    int fd = open_for_reading(path, &r->direct);
    if (fd < 0)
        return io_failed("read", path);
    double start = sl_clock_s();
    sl_status status = SL_OK;
    for (size_t at = 0; at < bytes && status == SL_OK; at += PIECE)
        if (pread(fd, buffer, PIECE, (off_t) at) != PIECE)
            status = io_failed("read from", path);
    r->read_bytes_per_s = (double) bytes / (sl_clock_s() - start);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return status;
}

/* ---- small pieces ---- */

typedef struct reader {
    const char *path;
    size_t bytes;
    double until;
    uint64_t seed;
    int64_t count;
    double *times; /* of the first MOST_SMALL; NULL: not wanted */
    bool failed;
} reader;

static void *read_small(void *context)
{
    reader *r = context;
    bool direct;
    int fd = open_for_reading(r->path, &direct);
    void *piece = NULL;
    r->failed = fd < 0 || posix_memalign(&piece, SMALL, SMALL) != 0;
    /* One at the least: on a busy machine the thread may begin when the time is over. */
    while (!r->failed && (r->count == 0 || sl_clock_s() < r->until) && r->count < MOST_SMALL) {
        uint64_t at = sl_philox(r->seed, (uint64_t) r->count, 5).v[0] % (r->bytes / SMALL);
        double start = sl_clock_s();
        r->failed = pread(fd, piece, SMALL, (off_t) (at * SMALL)) != SMALL;
        if (r->times)
            r->times[r->count] = sl_clock_s() - start;
        r->count++;
    }
    free(piece);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static sl_status small_reads(const char *path, size_t bytes, double seconds, int readers, double *times, int64_t *count,
                             double *per_s)
{
    pthread_t threads[MOST_READERS];
    reader r[MOST_READERS];
    double start = sl_clock_s();
    int started = 0;
    bool failed = false;
    for (int i = 0; i < readers; i++) {
        r[i] = (reader){.path = path, .bytes = bytes, .until = start + seconds, .seed = (uint64_t) i + 1};
        r[i].times = i == 0 ? times : NULL;
        if (pthread_create(&threads[i], NULL, read_small, &r[i]) != 0)
            break;
        started++;
    }
    *count = 0;
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        failed |= r[i].failed;
        *count += r[i].count;
    }
    *per_s = (double) *count / (sl_clock_s() - start);
    return failed || started < readers ? sl_fail(SL_E_IO, "cannot read small pieces of %s", path) : SL_OK;
}

/* "ext4 on nvme0n1 (solid)": what /proc/self/mountinfo and /sys say of the device number. */
static void describe(const char *folder, char out[64])
{
    struct stat info;
    char line[1024], device[64] = "", type[64] = "unknown", number[32];
    snprintf(out, 64, "unknown");
    if (stat(folder, &info) != 0)
        return;
    FILE *file = fopen("/proc/self/mountinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned most, least;
        char *dash = strstr(line, " - "), source[64] = "";
        if (sscanf(line, "%*d %*d %u:%u", &most, &least) == 2 && dash && most == major(info.st_dev) &&
            least == minor(info.st_dev)) {
            sscanf(dash, " - %63s %63s", type, source);
            snprintf(device, sizeof device, "%s", strrchr(source, '/') ? strrchr(source, '/') + 1 : source);
        }
    }
    if (file)
        fclose(file);
    bool guest = sl_disk_in_guest("/proc/cpuinfo", "/sys");
    snprintf(number, sizeof number, "%u:%u", major(info.st_dev), minor(info.st_dev));
    sl_disk_kind kind = sl_disk_kind_of("/sys", number, guest);
    if (kind == SL_DISK_UNKNOWN && device[0]) /* btrfs has numbers of its own */
        kind = sl_disk_kind_of("/sys", device, guest);
    if (kind != SL_DISK_UNKNOWN)
        snprintf(out, 64, "%.24s on %.24s (%s)", type, device, sl_disk_kind_name(kind));
    else
        snprintf(out, 64, "%.24s%s%.24s", type, device[0] ? " on " : "", device);
}

static sl_status measure(const char *path, size_t bytes, double seconds, unsigned char *buffer, double *times,
                         sl_disk_rates *r)
{
    static const int readers[] = {1, 4, MOST_READERS};
    int64_t count;
    SL_TRY(write_file(path, bytes, buffer, &r->write_bytes_per_s));
    SL_TRY(read_file(path, bytes, buffer, r));
    for (int i = 0; i < 3; i++) {
        SL_TRY(small_reads(path, bytes, seconds, readers[i], i == 0 ? times : NULL, &count, &r->small_per_s[i]));
        if (i == 0)
            sl_stats_of(times, count, &r->small_s);
    }
    return SL_OK;
}

sl_status sl_disk_measure(const char *folder, size_t bytes, double seconds, sl_disk_rates *rates)
{
    char path[1024];
    unsigned char *buffer;
    double *times = NULL;
    *rates = (sl_disk_rates){0};
    bytes = SL_ROUND_UP(bytes, (size_t) PIECE);
    if (snprintf(path, sizeof path, "%s/sluice-disk-%d.tmp", folder, (int) getpid()) >= (int) sizeof path)
        return sl_fail(SL_E_USAGE, "--disk has a path that is too long");
    describe(folder, rates->kind);
    SL_TRY(sl_alloc_aligned(&buffer, PIECE, 1, 4096));
    for (size_t i = 0; i < PIECE; i += 16) /* nothing a file system could compress away */
        memcpy(buffer + i, sl_philox(3, i, 0).v, 16);
    sl_status status = sl_alloc(&times, MOST_SMALL, sizeof *times);
    if (status == SL_OK)
        status = measure(path, bytes, seconds, buffer, times, rates);
    unlink(path);
    sl_free(times);
    sl_free(buffer);
    return status;
}
