#pragma once
/* The states of sampling in a process, and the requests that change them.
 *
 * Our functions that run instead of functions of the GC (the *replacements*) run the
 * requests (hook.h):
 *
 *             hook_open, hook_enabled          hook_hook
 *     CLOSED ------------------------> OPEN ------------> SAMPLING <--+
 *        ^                              ^                  |   |  |   | hook_rotate:
 *        |          hook_close          |    hook_unhook   |   |  +---+ the next segment
 *        +------------------------------+------------------+   |
 *                                       ^                      | hook_end(0)
 *                                       +------- PAUSED <------+
 *                                       hook_unhook
 *
 * In OPEN, there is a profile, and libpypy's code is in its original state.  In PAUSED,
 * the entries of the GC's functions are patched, but the replacements only call the
 * original functions.  The state is not stored in a variable.  hook_is_hooked() reads
 * libpypy's code, nursery.phase is set while samples are taken, and run.c knows whether
 * there is a profile.  A forked child begins in its parent's state
 * (start_stop_sample_child()).  A child that is not sampled changes to OPEN
 * (start_stop_forked()), and then to CLOSED.
 */

#include <stdint.h>

/* The replacements, to which the patched entries lead, in the order of hook_place.entry. */
void *start_stop_collect_and_reserve(void *gc, intptr_t size);
void start_stop_minor_collection(void *gc);
void *start_stop_external_malloc(void *gc, uintptr_t type, intptr_t length,
                                 uintptr_t young);

/* Return whether the process is sampled and no request is pending, so that a forked child
   can be sampled, too. */
int start_stop_may_sample_child(void);

/* Sample this forked child from now on, with its parent's settings and another seed.  The
   caller has the GIL.  Returns 0 or an errno. */
int start_stop_sample_child(uint64_t seed);

/* End sampling in a forked child.  Most children execute another program at once.
   Therefore, work that takes more than a few system calls is done by the next call of a
   replacement. */
void start_stop_forked(void);
