#pragma once
/* The sampled objects that the GC follows, with what a later part of the profile has to
   say of them: what their samples said (PROFILE.rst, ``carried``).

   The GC knows where they are, and this what they are: a table of its own, in the
   same order (sampled_objects.py).  All with the GIL. */

#include <stdint.h>

/* A profile begins, and nothing is followed; nor is it if one has ended. */
void followed_clear(void);

/* Bytes taken, at most since then */
int64_t followed_memory(void);

/* A sample was taken, of which the GC will tell. */
void followed_sampled(int64_t key, int64_t stack, int64_t size, int64_t interval);

/* What the GC tells, in its order, between recorder_begin_facts() and its end. */

/* Returns 0 if there is no memory: it is not followed. */
int followed_promoted(int64_t key, int64_t which, int64_t type, int64_t its_class,
                      int64_t size);
/* The GC has no memory for the one that was just promoted. */
void followed_lost(void);
/* That was all of the young ones. */
void followed_young_ended(void);
/* A major collection has marked: followed_freed() comes for the dead ones, and then
   the end. */
void followed_marked(void);
void followed_freed(int64_t key, int64_t which);
void followed_end(void);

/* Another part of the profile has begun: it gets all that is followed.  Between
   recorder_begin_facts() and its end, too */
void followed_carry(void);
