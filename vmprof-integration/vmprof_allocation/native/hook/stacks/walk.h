#pragma once
/* The stack of the calling thread, for allocation samples, CPU samples, and native
 * memory.
 *
 * If the list of frames that vmprof keeps was seen before, its key identifies the stack.
 * Otherwise, the stack is walked (true_stack.h).  If PyPy's table of compiled code was
 * not found, vmprof takes a sample instead.
 */

#include <signal.h>
#include <stdint.h>

#include "gc/nursery.h"

/* Set the functions that vmprof calls around its own handler, or NULL.  The first
   function returns whether vmprof ignores its signals at this moment. */
void walk_prepare(long (*enter_signal)(void), long (*exit_signal)(void));

/* Find vmprof's list of frames by a sample of this thread.  Returns 0 or an errno. */
int walk_find_stack(void);

/* Switch native frames on or off.  native_stack_learn() must have succeeded before. */
void walk_native(int on);

/* Return whether the allocations of the calling thread are ignored (hook_ignore()). */
int walk_is_ignored(void);

/* Take a CPU sample of the code that 'context' interrupts.  The caller is a signal
   handler with the recorder's lock. */
void walk_time_sample(siginfo_t *info, void *context);

/* Take an allocation sample (struct nursery).  Returns the interval for the next gap. */
int64_t walk_take_sample(const struct nursery_sample *sample);
