#pragma once
/* vmprof's own stack.
 *
 * vmprof keeps a linked list per thread, in a thread-local variable of
 * PyPy's: one node for each interpreted Python frame, one for each piece of
 * the JIT's machine code that is running.
 */

#include <stddef.h>
#include <stdint.h>

/* Find the thread-local variable in the library that is loaded at 'base'.
   'record' is a stack sample that vmprof took of this thread just now: the
   list has to hold what the sample holds.  Returns 0, or ENOTSUP. */
int vmprof_stack_find(uintptr_t base, const char *record, size_t size);

/* If this thread's innermost node is a piece of the JIT's code that called
   from a stub (jit_stub.h): the place of the return address on the machine
   stack, and in 'back' where the program goes on.  Otherwise NULL. */
uintptr_t *vmprof_stack_stub(uintptr_t *back);
