/* One writer at a time: a lock goes with the process that holds it, however that ends, so nothing has to be cleaned up. */
#include <errno.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/clock.h"

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
