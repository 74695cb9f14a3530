#pragma once
/* Return addresses of the JIT's code.
 *
 * vmprof takes the word below the stack pointer of a piece of compiled code for the return
 * address of the call that the piece has made last (stack_nodes.h).  On x86-64 that is
 * where a call stores it.  On AArch64 a call stores nothing: the address is wherever the
 * callee has saved x30.  There, the machine stack is unwound; and what is found is put where
 * vmprof looks, while a sample is taken by the program's own thread.
 *
 * On AArch64, the word belongs to the frame of the function that the piece has called.  Another
 * thread may use the word if it has the address.  With the GIL, this is possible only if C code
 * has called back into Python from that frame.  A signal's handler and samples without the GIL
 * must not change the word, so native memory (malloc) is not sampled on AArch64.
 */

#include <ucontext.h>

#include "../shared/stack_nodes.h"

#pragma GCC visibility push(hidden)

/* Return whether vmprof finds return addresses without jit_returns_begin(). */
int jit_returns_are_in_place(void);

/* Put the return addresses of all pieces in this list, of the calling thread, where vmprof
   looks.  The caller has the GIL, and calls jit_returns_end() before the next call. */
void jit_returns_begin(const struct stack_node *innermost);

/* Put back the words that were there before. */
void jit_returns_end(void);

/* For a signal's handler, one thread at a time: those of the pieces in this list, from the
   innermost one on, when 'context' is what it interrupts, at 'pc'; behind the last one that
   is known, 0.  If the innermost one is interrupted itself, the first is any but 0.  NULL: they are
   where vmprof looks. */
const uintptr_t *jit_returns_interrupted(const struct stack_node *innermost,
                                         const ucontext_t *context, uintptr_t *pc);

/* With the GIL: can they be found without it, and by a signal's handler? */
int jit_returns_are_free(void);

#pragma GCC visibility pop
