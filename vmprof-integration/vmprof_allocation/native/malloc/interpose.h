#pragma once
/* Divert the calls of some C functions in all libraries of the process, and undo it.
 *
 * A call from one library to another goes through a word of the calling library (a *slot*),
 * into which the dynamic linker has stored the address.  For slots that it fills later, and
 * for dlsym(), the linker computes the address from the value of the function's symbol.  So
 * this module changes the slots of all loaded objects, and the symbols of the object that
 * defines the function.  No code is changed.  Each change is one aligned store, so a call
 * reaches either the old or the new function.
 *
 * Copies of an address do not change.  A pointer that the program got from dlsym() before
 * the diversion leads to the real function for ever.  A pointer that the program got during
 * the diversion leads to the replacement for ever.  So the replacement must stay in memory,
 * and must call the real function after interpose_undo().
 */

#include <stddef.h>
#include <stdint.h>

/* A function whose calls are diverted */
struct interposed {
    const char *name;           /* name of the C function */
    uintptr_t ours;             /* address of the replacement */
    uintptr_t real;             /* address to which calls are bound; 0 if no library
                                   defines the function */
};

/* Set the functions to divert, one of which is called "malloc".  Sets 'real' to 0 for a
   function that this library defines, or that no library defines.  Returns 0, or ENOTSUP
   if malloc cannot be diverted. */
int interpose_find(struct interposed *functions, int count);

/* Divert all calls of the functions from interpose_find().  Call this function and
   interpose_undo() with the GIL, in one thread at a time.  Waits up to 40 ms for another
   thread that is loading an object.  Returns 0, or an errno if nothing was changed. */
int interpose_set(void);

/* Put the addresses of the real functions back into all slots and symbols.  A second call
   does nothing. */
void interpose_undo(void);

/* Return whether the C library defines the real malloc(). */
int interpose_is_libc(void);
