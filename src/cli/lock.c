/* Files that a command writes.
 * One writer at a time: a lock goes with the process that holds it, however that ends, so nothing has to be cleaned up. */
#include <errno.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/io_error.h"

bool sl_cli_lock(int fd, double patience_s)
{
    double start = sl_clock_s();
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return true; /* no locks here */
        if (sl_clock_s() - start >= patience_s)
            return false;
        usleep(5000);
    }
    return true;
}

/* Begins it as sl_file_write_atomic will, and lets it be: who may write, and where, is for the file system to say. */
sl_status sl_cli_check_writable(const char *path)
{
    sl_writer *writer;
    if (sl_dir_exists(path))
        return sl_io_failed("write", path, EISDIR, 0);
    SL_TRY(sl_writer_open(path, &writer));
    sl_writer_destroy(writer);
    return SL_OK;
}
