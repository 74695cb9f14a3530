#pragma once
/* Return addresses of the JIT's code, where vmprof looks for them.
 *
 * vmprof takes the word below the stack pointer of a piece of compiled code for the return
 * address of the call that the piece has made last (stack_nodes.h).  On x86-64 that is
 * where a call stores it.  On AArch64 a call stores nothing: the address is wherever the
 * callee has saved x30.  There, the machine stack is unwound, and what is found is put
 * where vmprof looks, until the sample is taken.
 */

#include "../shared/stack_nodes.h"

#pragma GCC visibility push(hidden)

/* Of all pieces in this list, of the calling thread: put them there.  With the GIL; no
   second time before jit_returns_end(). */
void jit_returns_begin(const struct stack_node *innermost);

/* Put back what was there. */
void jit_returns_end(void);

/* Return addresses are where vmprof looks in any case, also without the GIL. */
int jit_returns_are_there(void);

#pragma GCC visibility pop
