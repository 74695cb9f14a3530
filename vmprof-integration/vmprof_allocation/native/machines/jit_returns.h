#pragma once
/* Return addresses of the JIT's code.
 *
 * vmprof takes the word below the stack pointer of a piece of compiled code for the return
 * address of the call that the piece has made last (stack_nodes.h).  On x86-64 that is
 * where a call stores it.  On AArch64 a call stores nothing: the address is wherever the
 * callee has saved x30.  There, the machine stack is unwound; and what is found is put where
 * vmprof looks, while a sample is taken by the program's own thread.  A signal's handler
 * changes no word of the stack: what it interrupts may be using it.  (What is sampled without
 * the GIL, raw memory, does: the word is one of what the piece has called, and may be one that
 * other threads read, if its address was given to them.)
 */

#include <ucontext.h>

#include "../shared/stack_nodes.h"

#pragma GCC visibility push(hidden)

/* Whom they are put there for: each has a room of its own. */
enum jit_returns_of {
    JIT_RETURNS_OBJECT,         /* with the GIL */
    JIT_RETURNS_RAW,            /* perhaps without it, one thread at a time */
    JIT_RETURNS_INTERRUPTED,    /* jit_returns_interrupted()'s own */
    JIT_RETURNS_USERS
};

/* Of all pieces in this list, of the calling thread: put them there.  No second time before
   jit_returns_end(). */
void jit_returns_begin(enum jit_returns_of whom, const struct stack_node *innermost);

/* Put back what was there. */
void jit_returns_end(enum jit_returns_of whom);

/* For a signal's handler, one thread at a time: those of the pieces in this list, from the
   innermost one on, when 'context' is what it interrupts, at 'pc'; behind the last one that
   is known, 0.  If the innermost one is interrupted itself, the first is any but 0.  NULL: they are
   where vmprof looks. */
const uintptr_t *jit_returns_interrupted(const struct stack_node *innermost,
                                         const ucontext_t *context, uintptr_t *pc);

/* With the GIL: can they be found without it, and by a signal's handler? */
int jit_returns_are_free(void);

#pragma GCC visibility pop
