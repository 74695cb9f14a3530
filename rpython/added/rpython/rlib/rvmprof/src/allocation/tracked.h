#pragma once
/* The sampled objects that the GC tracks, with what a later part of the profile has to
   say of them: what their samples said (PROFILE.rst, `inherited`).

   The GC knows where they are, and this what they are: a table of its own, in the
   same order (sampled_objects.py).  All with the GIL. */

#include <stdint.h>

/* A profile begins, and nothing is tracked; nor is it if one has ended. */
void tracked_clear(int fixed_gaps);

/* Bytes taken, at most since then */
int64_t tracked_memory(void);

/* A sample was taken, of which the GC will tell. */
void tracked_sampled(int64_t key, int64_t stack, int64_t size, int64_t interval);

/* What the GC tells, in its order, between recorder_begin_facts() and its end. */

/* 'size' and 'live_size' as recorder_young() has them; 'address': where it is now, and
   stays.  Returns 0 if there is no memory: it is not tracked. */
int tracked_promoted(int64_t key, int64_t which, int64_t type, int64_t its_class,
                     int64_t size, int64_t live_size, int64_t address);
/* The sample of this key stays in the nursery: the GC tells of it again after the next
   minor collection.  Returns 0 if nothing is known of the sample. */
int tracked_pinned(int64_t key);
/* The GC has no memory for that one. */
void tracked_lost(void);
/* Nobody knows what became of this one; 'size' as recorder_young() has it. */
void tracked_not_known(int64_t key, int64_t size);
/* That was all of the young ones. */
void tracked_young_ended(void);
/* A major collection has marked: tracked_freed() comes for the dead ones, and then
   the end. */
void tracked_marked(void);
void tracked_freed(int64_t key, int64_t which);
void tracked_end(void);
/* A major collection has swept: recorder_swept() */
void tracked_swept(int64_t heap, int64_t heap_at_begin);

/* Another part of the profile has begun: it gets all that is tracked.  Between
   recorder_begin_facts() and its end, too */
void tracked_inherit(void);

/* What is alive, of a program that runs on: how many numbers follow, and of each
   object its address, key, stack, size, live_size (hook.h), interval and type, under
   the numbers of the profile; for free().  NULL: there is no memory.  Between
   recorder_begin_facts() and its end */
int64_t *tracked_copy(void);
/* What there is now does not count any more. */
void tracked_forget(void);
/* Estimated bytes of what counts, and the most that there were after a minor collection
   since the beginning or tracked_reset_peak() */
void tracked_traced(double *alive, double *peak);
void tracked_reset_peak(void);
/* Objects that there was no memory for */
int64_t tracked_missing(void);
