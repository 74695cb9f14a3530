#pragma once
/* libpypy's pointers to C functions such as write().  Only calls from libpypy use these
 * pointers.
 *
 * Each pointer is changed by one atomic store, so libpypy needs no lock: it calls either
 * the C function or our function.  A mutex guards the changes, because one thread must not
 * protect a page again while another thread writes to this page.
 */

#include <stdint.h>

enum {
    /* The pointers, in the order of IMPORTS in layout.py. */
    DIVERT_WRITE, DIVERT_MMAP, DIVERT_MMAP64, DIVERT_MUNMAP, DIVERT_LSEEK,
    DIVERT_LSEEK64, DIVERT_EXIT, DIVERT_ABORT, DIVERT_KILL, DIVERT_RAISE,
    DIVERT_EXECV, DIVERT_EXECVE, DIVERT_SIGACTION, DIVERT_FREE,
    DIVERTS
};

/* Set the addresses of the pointers, the bit mask of read-only pointers, and our functions.
   An address is 0 if libpypy lacks the pointer.  Changes no pointer.  Call it once per
   process. */
void divert_prepare(const uintptr_t slot[DIVERTS], uint32_t read_only,
                    const uintptr_t ours[DIVERTS]);

/* Redirect pointer i to our function if 'diverted' is true, or restore its previous
   target.  A repeated call does nothing.  Returns 0 or an errno. */
int divert_set(int i, int diverted);

/* Reset the mutex in a forked child, because another thread of the parent may have held
   it. */
void divert_forked(void);

/* Call divert_set() for all pointers, even after an error.  Returns 0 or the first
   errno. */
int divert_set_all(int diverted);
