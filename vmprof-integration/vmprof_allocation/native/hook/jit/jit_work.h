#pragma once
/* A test whether the JIT itself allocates, because it traces a loop, optimizes it, or
 * writes machine code.
 *
 * PyPy has a list of the current phases of its JIT, for its statistics.  This list is not
 * sufficient, because the JIT runs the program while it traces.  The running functions
 * are then the program's or the JIT's.  The shadow stack has the references of all
 * running RPython functions, so it shows which kind was called last.
 *
 * A LogTrace object writes a trace to the JIT's log (jit_log.h).  Only its running method
 * refers to this object, from the shadow stack.  The references of the functions that the
 * method has called follow there.  The method also calls the interpreter, which returns
 * the name of a function.
 */

#include <stddef.h>
#include <stdint.h>

/* Set the addresses hook_place.jit_phases and hook_place.roots.  An unknown address is
   0. */
void jit_work_prepare(uintptr_t phases, uintptr_t roots);

/* The JIT's kinds of work, as in PROFILE.rst. */
enum jit_work { JIT_WORK_NONE = 0, JIT_WORK_COMPILER = 1, JIT_WORK_LOG = 2 };

/* Return the kind of work for which the JIT allocates 'size' bytes, or JIT_WORK_NONE if
   the program allocates them.  The result can be JIT_WORK_LOG only if 'has_log' is true.
   The caller has the GIL, at a place where the GC may collect. */
enum jit_work jit_work(size_t size, int has_log);
