#pragma once
/* Lead the process's calls of some C functions to ours, and back.
 *
 * A call from one library into another goes through a word of the caller's, which the
 * dynamic linker has filled in (a *slot*); what it fills in later, and what dlsym()
 * says, it computes from the value of the function's symbol.  So both are changed: the
 * slots of all loaded objects, and the symbols of the object that defines the function.
 * No code is, and each change is one aligned store, so that a call goes to the one
 * function or to the other.
 *
 * Copies of an address stay: those that were made before (a pointer that the program
 * asked dlsym() for) lead to the real function for ever, and those made meanwhile to
 * ours, which has to stay, and to do then what the real one does.
 */

#include <stddef.h>
#include <stdint.h>

struct interposed {
    const char *name;
    uintptr_t ours;
    uintptr_t real;             /* the address that calls are bound to; 0 if none has it */
};

/* Check the real functions, of which one is called malloc.  Returns 0 or an errno. */
int interpose_find(struct interposed *functions, int count);

/* All of them to ours: with the GIL, and one thread at a time, as the next one.  Slots of an
   object that another thread is loading at this moment are awaited, for 40 ms at most.
   Returns 0, or an errno: then nothing is changed. */
int interpose_set(void);

/* Whatever holds one of ours gets the real one.  Harmless if it was done before. */
void interpose_undo(void);

/* The real functions are the C library's own. */
int interpose_is_libc(void);
