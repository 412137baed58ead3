#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

sl_status sl_child_spawn(int closed, pid_t *pid, int *end)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return sl_fail(SL_E_IO, "cannot start a cell: %s", strerror(errno));
    fflush(stdout);
    *pid = fork();
    if (*pid == 0) {
        close(ends[0]);
        if (closed >= 0)
            close(closed);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        *end = ends[1];
        return SL_OK;
    }
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return sl_fail(SL_E_MEMORY, "cannot start a process for a cell: %s; try --jobs 1", strerror(errno));
    }
    *end = ends[0];
    return SL_OK;
}

void sl_child_answer(int end, const void *bytes, size_t length)
{
    ssize_t wrote = write(end, bytes, length);
    _exit(wrote == (ssize_t) length ? 0 : 1);
}

bool sl_child_receive(pid_t pid, int end, void *bytes, size_t length, char error[128])
{
    ssize_t got;
    int status = 0;
    do
        got = read(end, bytes, length);
    while (got < 0 && errno == EINTR);
    close(end);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (got == (ssize_t) length)
        return true;
    snprintf(error, 128, WIFSIGNALED(status) ? "the cell's process was ended by signal %d" : "exit code %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}
