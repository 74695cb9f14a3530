#pragma once
/* A thread's stack in vmprof's format, without the errors of the stacks that vmprof walks.
 *
 * vmprof walks a list that has a node for each running piece of compiled code, the code of
 * one loop or bridge.  It looks up the functions that are inlined in a piece in PyPy's
 * table of compiled code (codemap.h).  The list and the table are wrong where compiled
 * code calls compiled code (jit_call.h):
 *
 * - A function that will be compiled soon is called through a piece of code that lets the
 *   interpreter run the function.  The table does not contain the function of this piece,
 *   and the list has no node for the function.
 * - A function in which a guard failed continues in the interpreter.  The node of its
 *   piece is gone, and the function gets no other node.
 * - A function that was inlined up to its loop, which is a separate piece, is in the
 *   table for both pieces.
 */

#include <stddef.h>
#include <stdint.h>

#include "stack_nodes.h"

/* Maximum numbers of words of a stack.  PyPy's vmprof cuts a stack at TRUE_STACK_CUT.
   TRUE_STACK_MOST includes the lines, at most one for each function. */
#define TRUE_STACK_CUT  1018
#define TRUE_STACK_MOST 1900

/* Walk the stack that begins with the node 'innermost'.  Stores the stack in 'words' as
   pairs (kind, address) of PROFILE.rst, with lines if they are on (jit_lines.h).  Returns
   the number of words.  The caller has the GIL and the recorder's lock. */
size_t true_stack(const struct stack_node *innermost,
                  int64_t words[TRUE_STACK_MOST]);

/* Walk the stack like true_stack(), but without lines and perhaps without the GIL.  The
   caller has the recorder's lock, and PyPy must not change its table meanwhile.  'pc' is
   the address at which a signal interrupts this thread, or 0.  'returns' is the result of
   jit_returns_interrupted(), or NULL. */
size_t true_stack_of_functions(const struct stack_node *innermost, uintptr_t pc,
                               const uintptr_t *returns, int64_t words[TRUE_STACK_MOST]);
