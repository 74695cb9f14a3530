#pragma once
/* The stack of the thread that allocates: it is known by the list of frames that vmprof
 * keeps, or walked (true_stack.h), or, where PyPy's table of compiled code was not found,
 * vmprof is asked to take a sample. */

#include <signal.h>
#include <stdint.h>

#include "gc/nursery.h"

/* What vmprof puts around its own handler, or NULL: the first of these tells whether it
   ignores its signals just now. */
void walk_prepare(long (*enter_signal)(void), long (*exit_signal)(void));

/* Find vmprof's own stack, with a sample of this thread.  Returns 0 or an
   errno. */
int walk_find_stack(void);

/* With native frames, or without.  They have to be learnt before. */
void walk_native(int on);

/* What the calling thread does is not the program's: hook_ignore() */
int walk_is_ignored(void);

/* Take a time sample, of what 'context' interrupts: in a signal's handler, with the recorder's
   lock. */
void walk_time_sample(siginfo_t *info, void *context);

/* Take an allocation sample; nursery.h says what is returned. */
int64_t walk_take_sample(const struct nursery_sample *sample);
