#pragma once
/* Where the JIT's code stands when it allocates.
 *
 * vmprof's stack has one node for each piece of the JIT's machine code that
 * is running.  Where in this piece the program is, vmprof learns from the
 * return address of the call that the piece has made last; a table then says
 * which functions are inlined there.
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
 * a stub like this one, too.)  A PyPy with our patches needs none of this: its
 * table knows about stubs.
 */

#include <stdint.h>

/* If 'address', a return address, lies in such a stub: where the program goes
   on.  Otherwise, or on another processor than x86-64, 0. */
__attribute__((visibility("hidden")))
uintptr_t jit_stub_back(uintptr_t address);
