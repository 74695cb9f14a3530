#pragma once
/* Requests to start and stop, and the entries of the GC's functions, in which
 * they are carried out: hook.h says why. */

#include <stdint.h>

/* What the entries lead to, in the order of hook_place.entry */
void *start_stop_collect_and_reserve(void *gc, intptr_t size);
void start_stop_minor_collection(void *gc);
void *start_stop_external_malloc(void *gc, uintptr_t type, intptr_t length,
                                 uintptr_t young);

/* Unhook when the GC is next entered: nobody knocks for it. */
void start_stop_end(void);

/* The process is sampled, and no request waits: a child can go on. */
int start_stop_may_follow(void);

/* In a forked child, with the GIL: sample it from now on, as its parent, with
   another seed.  Returns 0 or an errno. */
int start_stop_follow(uint64_t seed);

/* In a forked child, which is not sampled.  Most children become another
   program at once: what takes more than a few system calls is left to the next
   entry. */
void start_stop_forked(void);
