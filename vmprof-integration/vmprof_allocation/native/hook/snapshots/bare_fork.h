#pragma once
/* A process of ours that is the program's in name only: a copy of its memory, without its
 * files, its signals' handlers, and its process group.
 *
 * It is forked by the bare system call: no handler of a fork runs, and it sends no signal at
 * its end, so that the program's wait() and handlers do not notice it.  It ends with the
 * thread that made it.  Another thread may have been anywhere: it must call nothing that
 * takes a lock.
 */

#include <sys/types.h>

#pragma GCC visibility push(hidden)

/* It stays no longer, if nobody ends it before. */
#define BARE_FORK_SECONDS  90

/* Fork with this niceness.  Return 0 in the new process, or -errno. */
pid_t bare_fork(int niceness);

/* For so many seconds at most, or until a signal comes.  Returns 0 if it has ended, or is
   none; it is still to be reaped. */
int bare_fork_is_at_work(pid_t child, double seconds);

/* Reap it.  If it was still at work, that is its end, and 'is_late' is 1.  Returns 0 if
   there is none. */
int bare_fork_reap(pid_t child, int *status, int *is_late);

#pragma GCC visibility pop
