#pragma once
/* The stack of the calling thread, for allocation samples, CPU samples, and native
 * memory.
 *
 * vmprof keeps a list of the thread's frames, and a key of this list identifies the stack.
 * The stack is walked only if its key is new (true_stack.h).  If PyPy's table of compiled
 * code was not found, vmprof takes a sample instead.
 */

#include <signal.h>
#include <stdint.h>

#include "gc/nursery.h"

/* Set the functions that vmprof calls at the beginning and the end of its handler, or NULL
   if they are unknown.  'enter_signal' returns whether vmprof ignores its signals at this
   moment. */
void walk_prepare(long (*enter_signal)(void), long (*exit_signal)(void));

/* Find vmprof's list of frames, by a sample that vmprof takes of this thread
   (vmprof_stack.h).  Returns 0 or an errno. */
int walk_find_stack(void);

/* Switch native frames on or off.  native_stack_learn() must have succeeded before. */
void walk_native(int on);

/* Return whether the allocations of the calling thread are ignored (hook_ignore()). */
int walk_is_ignored(void);

/* Take a CPU sample of the code that 'context' interrupts.  The caller is a signal
   handler with the recorder's lock. */
void walk_time_sample(siginfo_t *info, void *context);

/* Take an allocation sample (struct nursery).  Returns the interval for the next gap in
   bytes. */
int64_t walk_take_sample(const struct nursery_sample *sample);
