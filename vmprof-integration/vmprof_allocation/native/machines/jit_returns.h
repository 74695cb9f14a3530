#pragma once
/* Return addresses of the JIT's code.
 *
 * For each running piece of compiled code (the code of a loop or bridge), vmprof takes the
 * word below its stack pointer for the return address of its last call (stack_nodes.h).  On
 * x86-64, a call stores the return address there.  On AArch64, a call stores nothing: the
 * callee saves x30 anywhere in its frame.  So the machine stack is unwound, and the return
 * addresses are written where vmprof reads them, while the program's own thread takes a
 * sample.
 *
 * On AArch64, the word that vmprof reads belongs to the frame of the function that the
 * piece has called.  Another thread may use the word if it has the word's address.  While
 * this thread has the GIL, this is possible only if C code has called back into Python from
 * that frame.  A signal handler and samples without the GIL must not change the word, so
 * native memory (malloc) is not sampled on AArch64.
 */

#include <ucontext.h>

#include "../shared/stack_nodes.h"

#pragma GCC visibility push(hidden)

/* Return whether vmprof finds return addresses without jit_returns_begin(). */
int jit_returns_are_in_place(void);

/* Write the return addresses of all pieces in the calling thread's list to the words that
   vmprof reads.  The caller has the GIL, and calls jit_returns_end() before it calls this
   function again. */
void jit_returns_begin(const struct stack_node *innermost);

/* Restore the words that jit_returns_begin() has overwritten. */
void jit_returns_end(void);

/* Return the return addresses of the pieces in this list, from the innermost one on,
   with 0 after the last known address.  For a signal handler, in one thread at a time;
   'context' is the interrupted state, whose program counter is stored in 'pc'.  If the
   innermost piece itself was interrupted, its return address is an arbitrary value other
   than 0.  Returns NULL if vmprof finds the addresses itself. */
const uintptr_t *jit_returns_interrupted(const struct stack_node *innermost,
                                         const ucontext_t *context, uintptr_t *pc);

/* Return whether return addresses can be found without the GIL, and by a signal handler.
   Call this with the GIL. */
int jit_returns_are_free(void);

#pragma GCC visibility pop
