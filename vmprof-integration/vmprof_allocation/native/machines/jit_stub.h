#pragma once
/* Finds the place in the JIT's code that allocates.
 *
 * vmprof's stack has one node for each running piece of compiled code, which is the machine
 * code of a loop or bridge.  vmprof finds the place within the piece by the return address
 * of the last call that the piece has made.  A table (codemap.h) then shows which functions
 * are inlined there.
 *
 * For an allocation, this place is wrong, because the call is made from a stub after the
 * end of the piece:
 *
 *          ...                         def f(): ... g() ...
 *          cmp rdx, [nursery_top]
 *          ja  stub                    in g, inlined into f
 *   back:  ...
 *          (end of the piece)
 *   stub:  call malloc_slowpath        "at the end of f"
 *          jmp back
 *
 * The sample would be attributed to the function at the end of the piece.  The jump in the
 * stub leads to the real place.  The growth of a list is also called from such a stub.  A
 * PyPy with this project's patches does not need this module: its table contains the stubs.
 */

#include <stdint.h>

/* Return the address ('back' above) at which the program continues after the stub if the
   return address 'address' is in such a stub.  Otherwise, and on processors other than
   x86-64, returns 0. */
__attribute__((visibility("hidden")))
uintptr_t jit_stub_back(uintptr_t address);
