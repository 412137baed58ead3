/* Work in a process of its own, whose result comes back through a pipe as one small struct. */
#ifndef SL_CLI_CHILD_H
#define SL_CLI_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/status.h"

/* Forks: *pid is 0 in the child, which answers to *end what this process receives there. The child closes `closed` (-1: nothing) and
 * ends with its parent. */
sl_status sl_child_spawn(int closed, pid_t *pid, int *end);
/* The end of a child. At most as many bytes as a pipe takes at once. */
void sl_child_answer(int end, const void *bytes, size_t length) __attribute__((noreturn));
/* Waits for a child's answer and its end; where there is no answer, says why in `error`. */
bool sl_child_receive(pid_t pid, int end, void *bytes, size_t length, char error[128]);

#endif
