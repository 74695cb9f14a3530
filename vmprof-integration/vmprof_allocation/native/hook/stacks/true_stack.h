#pragma once
/* A thread's stack, as vmprof would write it, but right where vmprof is not.
 *
 * vmprof walks a list that has a node for each piece of the JIT's code that is running, and
 * looks up in a table (codemap.h) which functions are inlined there.  Both are wrong where
 * compiled code calls compiled code (jit_call.h):
 *
 * - A function that is about to be compiled is called through a piece of code that has the
 *   interpreter run it.  The table doesn't say of which function this piece is, and the
 *   list has no node for the function.
 * - A function of which a guard has failed goes on in the interpreter.  The node of its
 *   piece is gone, and it gets no other.
 * - A function that was inlined as far as its loop, which is a piece of its own, is told
 *   of both pieces.
 */

#include <stddef.h>
#include <stdint.h>

#include "stack_nodes.h"

/* Words: PyPy's vmprof cuts a stack here; and with the lines of compiled code (jit_lines.h),
   of which there is one for each function at most */
#define TRUE_STACK_CUT  1018
#define TRUE_STACK_MOST 1900

/* The stack that begins with the node 'innermost', as pairs (kind, address) of
   PROFILE.rst.  Returns the number of words.  With the GIL, and the recorder's lock. */
size_t true_stack(const struct stack_node *innermost,
                  int64_t words[TRUE_STACK_MOST]);

/* Likewise without lines, with the recorder's lock alone, and while PyPy doesn't change its
   table.  'pc': where a signal interrupts this thread, and 'returns' what
   jit_returns_interrupted() says of it; or 0 and NULL. */
size_t true_stack_of_functions(const struct stack_node *innermost, uintptr_t pc,
                               const uintptr_t *returns, int64_t words[TRUE_STACK_MOST]);
