#pragma once
/* Return addresses of the JIT's code.
 *
 * For each piece of compiled code, vmprof takes the word below its stack pointer for the
 * return address of its last call (stack_nodes.h).  On x86-64, a call stores the return
 * address there.  On AArch64, a call stores nothing: the callee saves x30 at any place of
 * its frame.  So the machine stack is unwound, and the return addresses are written where
 * vmprof reads them, while the program's own thread takes a sample.
 *
 * On AArch64, the word belongs to the frame of the function that the piece has called.
 * Another thread may use the word if it has the address.  With the GIL, this is possible
 * only if C code has called back into Python from that frame.  A signal handler and samples
 * without the GIL must not change the word, so native memory (malloc) is not sampled on
 * AArch64.
 */

#include <ucontext.h>

#include "../shared/stack_nodes.h"

#pragma GCC visibility push(hidden)

/* Return whether vmprof finds return addresses without jit_returns_begin(). */
int jit_returns_are_in_place(void);

/* Write the return addresses of all pieces in this list, which must be the calling
   thread's, where vmprof reads them.  The caller has the GIL, and calls
   jit_returns_end() before the next call. */
void jit_returns_begin(const struct stack_node *innermost);

/* Restore the words that were there before. */
void jit_returns_end(void);

/* Return the return addresses of the pieces in this list, from the innermost one on,
   with 0 after the last known address.  For a signal handler, in one thread at a time;
   'context' is the interrupted state, whose program counter is stored in 'pc'.  If the
   innermost piece itself was interrupted, its address is any value except 0.  Returns
   NULL if vmprof finds the addresses itself. */
const uintptr_t *jit_returns_interrupted(const struct stack_node *innermost,
                                         const ucontext_t *context, uintptr_t *pc);

/* Return whether return addresses can be found without the GIL, and by a signal handler.
   Call this with the GIL. */
int jit_returns_are_free(void);

#pragma GCC visibility pop
