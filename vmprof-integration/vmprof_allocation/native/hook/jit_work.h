#pragma once
/* Whether it is the JIT itself that allocates: it traces a loop, makes it better, and writes
 * machine code for it.
 *
 * PyPy keeps a list of what its JIT does, for its statistics.  While it traces, it runs what
 * it traces, so that the list is not enough: what runs then are functions of the program's,
 * or the JIT's.  Which of them was called last, its *roots* tell: each function of RPython's
 * that runs keeps there which objects it refers to.
 */

#include <stddef.h>
#include <stdint.h>

/* hook_place's words; 0: not known */
void jit_work_prepare(uintptr_t phases, uintptr_t roots);

/* Does the JIT allocate these bytes for itself?  With the GIL, where the GC could begin to
   collect. */
int jit_work_is_on(size_t size);
/* Then: does it write its log (jit_log.h)? */
int jit_work_is_log(void);
