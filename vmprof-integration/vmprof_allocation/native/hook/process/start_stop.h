#pragma once
/* The life of sampling in a process, as requests that the entries of the GC's functions
 * run (hook.h says why):
 *
 *             hook_open, hook_enabled          hook_hook
 *     CLOSED ------------------------> OPEN ------------> SAMPLING <--+
 *        ^                              ^                  |   |  |   | hook_rotate:
 *        |          hook_close          |    hook_unhook   |   |  +---+ the next profile
 *        +------------------------------+------------------+   |
 *                                       ^                      | hook_end(0)
 *                                       +------- PAUSED <------+
 *                                       hook_unhook
 *
 * OPEN: there is a profile, and libpypy's code is what it was.  PAUSED: our entries are
 * there, and call the GC's own functions only.  The state is not stored a second time:
 * hook_is_hooked() reads libpypy's code, nursery.phase says whether samples are taken,
 * and run.c whether there is a profile.  A forked child begins like its parent
 * (start_stop_sample_child) or goes to OPEN (start_stop_forked), and then closes.
 */

#include <stdint.h>

/* What the entries lead to, in the order of hook_place.entry */
void *start_stop_collect_and_reserve(void *gc, intptr_t size);
void start_stop_minor_collection(void *gc);
void *start_stop_external_malloc(void *gc, uintptr_t type, intptr_t length,
                                 uintptr_t young);

/* The process is sampled, and no request waits: a child can go on. */
int start_stop_may_sample_child(void);

/* In a forked child, with the GIL: sample it from now on, as its parent, with
   another seed.  Returns 0 or an errno. */
int start_stop_sample_child(uint64_t seed);

/* In a forked child, which is not sampled.  Most children become another
   program at once: what takes more than a few system calls is left to the next
   entry. */
void start_stop_forked(void);
