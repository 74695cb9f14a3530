#pragma once
/* libpypy's pointers to C functions: the ones that calls from libpypy to
 * write() and the like go through.  Nobody else's calls do.
 *
 * Each pointer is changed by one atomic store, so that who calls needs no
 * lock: a call goes to the one function or to the other.  A mutex guards the changes: one
 * thread must not protect a page again while another thread writes to it.
 */

#include <stdint.h>

enum {
    DIVERT_WRITE, DIVERT_MMAP, DIVERT_MMAP64, DIVERT_MUNMAP, DIVERT_LSEEK,
    DIVERT_LSEEK64, DIVERT_EXIT, DIVERT_ABORT, DIVERT_KILL, DIVERT_RAISE,
    DIVERT_EXECV, DIVERT_EXECVE, DIVERT_SIGACTION, DIVERT_FREE,
    DIVERTS
};

/* Where the pointers are, 0 for one that libpypy does not have; which are
   read-only, bit by bit; and what they are to become.  Once per process; changes
   nothing yet. */
void divert_prepare(const uintptr_t slot[DIVERTS], uint32_t read_only,
                    const uintptr_t ours[DIVERTS]);

/* Lead pointer i to our function, or back to where it led before.  Either is
   harmless if it has been done already.  Returns 0 or an errno. */
int divert_set(int i, int diverted);

/* Unlock the mutex in a forked child: another thread of the parent may have held it. */
void divert_forked(void);

/* All of them, however far the first error comes.  Returns it, or 0. */
int divert_set_all(int diverted);
