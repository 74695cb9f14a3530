#pragma once
/* Whether it is the JIT itself that allocates: it traces a loop, makes it better, and writes
 * machine code for it.
 *
 * PyPy keeps a list of what its JIT does, for its statistics.  While it traces, it runs what
 * it traces, so that the list is not enough: what runs then are functions of the program's,
 * or the JIT's.  Which of them was called last, its *roots* tell: each function of RPython's
 * that runs keeps there which objects it refers to.
 *
 * A trace is written to the JIT's log (jit_log.h) by a method of an object that nothing else
 * refers to: it is among the roots, not far behind those of what the method has called, which
 * may be the interpreter, for the name of a function.
 */

#include <stddef.h>
#include <stdint.h>

/* hook_place's words; 0: not known */
void jit_work_prepare(uintptr_t phases, uintptr_t roots);

/* As profiles have it (PROFILE.rst) */
enum jit_work { JIT_WORK_NONE = 0, JIT_WORK_COMPILER = 1, JIT_WORK_LOG = 2 };

/* Does the JIT allocate these bytes for itself, or for its log, if it 'has_log'?  With the
   GIL, where the GC could begin to collect. */
enum jit_work jit_work(size_t size, int has_log);
