#pragma once
/* The sampled objects that the GC follows, with what a later part of the profile has to
   say of them: what their samples said (PROFILE.rst, ``carried``).

   The GC knows where they are, and this what they are: a table of its own, in the
   same order (sampled_objects.py).  All with the GIL. */

#include <stdint.h>

/* A profile begins, and nothing is followed; nor is it if one has ended. */
void followed_clear(int fixed_gaps);

/* Bytes taken, at most since then */
int64_t followed_memory(void);

/* A sample was taken, of which the GC will tell. */
void followed_sampled(int64_t key, int64_t stack, int64_t size, int64_t interval);

/* What the GC tells, in its order, between recorder_begin_facts() and its end. */

/* 'size' and 'live_size' as facts_young() has them.  Returns 0 if there is no memory: it
   is not followed. */
int followed_promoted(int64_t key, int64_t which, int64_t type, int64_t its_class,
                      int64_t size, int64_t live_size);
/* The sample of this key stays in the nursery: the GC tells of it again after the next
   minor collection.  Returns 0 if nothing is known of the sample. */
int followed_pinned(int64_t key);
/* Where the one is that was just promoted */
void followed_address(int64_t address);
/* The GC has no memory for that one. */
void followed_lost(void);
/* Nobody knows what became of this one; 'size' as facts_young() has it. */
void followed_not_known(int64_t key, int64_t size);
/* That was all of the young ones. */
void followed_young_ended(void);
/* A major collection has marked: followed_freed() comes for the dead ones, and then
   the end. */
void followed_marked(void);
void followed_freed(int64_t key, int64_t which);
void followed_end(void);
/* A major collection has swept: facts_swept() */
void followed_swept(int64_t heap, int64_t heap_at_begin);

/* Another part of the profile has begun: it gets all that is followed.  Between
   recorder_begin_facts() and its end, too */
void followed_carry(void);

/* What is alive, of a program that runs on: how many numbers follow, and of each
   object its address, key, stack, size, live_size (hook.h), interval and type, under
   the numbers of the profile; for free().  NULL: there is no memory.  Likewise between the two */
int64_t *followed_copy(void);
/* What there is now does not count any more. */
void followed_forget(void);
/* Estimated bytes of what counts, and the most that there were after a minor collection
   since the beginning or followed_reset_peak() */
void followed_traced(double *alive, double *peak);
void followed_reset_peak(void);
/* Objects that there was no memory for */
int64_t followed_missing(void);
