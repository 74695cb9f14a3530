#pragma once
/* A process for heap snapshots, forked from the program (held_by.c).
 *
 * The process has a copy of the program's memory, but not its files, signal handlers, and
 * process group.  It is forked with the bare system call, so no fork handler runs.  It
 * sends no signal at its end, so the program's wait() and signal handlers do not notice
 * it.  It ends together with the thread that forked it.  At the fork, another thread of
 * the program may have held any lock.  Therefore, the process must not call a function
 * that takes a lock.
 */

#include <sys/types.h>

#pragma GCC visibility push(hidden)

/* Lifetime of the process in seconds, if it does not end earlier. */
#define BARE_FORK_SECONDS  90

/* Fork the process, which gets this niceness.  Returns 0 in the new process.  In the
   calling process, returns the PID of the new process, or -errno. */
pid_t bare_fork(int niceness);

/* Wait for the process 'child', at most for 'seconds', or until a signal arrives.
   Returns 1 if 'child' is still running, or 0 if it has ended or does not exist.  After a
   0, the caller must call bare_fork_reap(). */
int bare_fork_is_at_work(pid_t child, double seconds);

/* Reap the process 'child'.  If it is still running, it is killed, and '*is_late' becomes
   1.  '*status' is as for waitpid().  Returns 1, or 0 if there is no such process. */
int bare_fork_reap(pid_t child, int *status, int *is_late);

#pragma GCC visibility pop
