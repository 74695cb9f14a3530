#pragma once
/* vmprof's own stack, and where the JIT's code stands in it.
 *
 * vmprof keeps a linked list per thread, in a thread-local variable of
 * PyPy's: one node for each interpreted Python frame, one for each piece of
 * the JIT's machine code that is running.  Where in this piece the program
 * is, vmprof learns from the return address of the call that the piece has
 * made last; a table then says which Python frames are inlined there.
 *
 * For an allocation this goes wrong.  The call is made from a stub behind
 * the end of the piece:
 *
 *          ...                         def f(): ... g() ...
 *          cmp rdx, [nursery_top]
 *          ja  stub                    in g, inlined into f
 *   back:  ...
 *          (end of the piece)
 *   stub:  call malloc_slowpath        "at the end of f"
 *          jmp back
 *
 * so that the sample would be charged to whatever the piece ends with.  The
 * jump says where the program really is.  (A list that grows is called from
 * a stub like this one, too.)
 */

#include <stddef.h>
#include <stdint.h>

/* Find the thread-local variable in the library that is loaded at 'base'.
   'record' is a stack sample that vmprof took of this thread just now: the
   list has to hold what the sample holds.  Returns 0, or ENOTSUP. */
int vmprof_stack_find(uintptr_t base, const char *record, size_t size);

/* If this thread's innermost node is a piece of the JIT's code that called
   from a stub: the place of the return address on the machine stack, and in
   'back' where the program goes on.  Otherwise NULL. */
uintptr_t *vmprof_stack_stub(uintptr_t *back);
