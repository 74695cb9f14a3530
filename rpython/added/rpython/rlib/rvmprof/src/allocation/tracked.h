#pragma once
/* The sampled objects that the GC tracks, with their stacks, sizes, intervals and types.
 *
 * A later segment of the profile needs these values (PROFILE.rst, `inherited`), and so do
 * snapshots of the live objects.  The GC's table (sampled_outcomes.py) has the addresses,
 * and this table has the values, in the same order.  Samples whose outcome is not reported
 * yet wait in a second table.  Call all functions with the GIL, or before the sampling
 * starts. */

#include <stdint.h>

/* Start with empty tables.  'fixed_gaps' is 1 if the gaps between samples are fixed. */
void tracked_clear(int fixed_gaps);

/* Return the maximal size of the tables in bytes since tracked_clear(). */
int64_t tracked_memory(void);

/* Store a new sample, whose outcome the GC will report.  'stack' is the node of its
   stack. */
void tracked_sampled(int64_t key, int64_t stack, int64_t size, int64_t interval);

/* Call the following functions in the order of the GC's facts, between
   recorder_begin_facts() and recorder_end_facts(). */

/* Track a promoted object.  'size' and 'live_size' are as for recorder_young(); 'address'
   is the object's final address.  Returns 0 if the object is not tracked, because there is
   no memory. */
int tracked_promoted(int64_t key, int64_t which, int64_t type, int64_t its_class,
                     int64_t size, int64_t live_size, int64_t address);
/* Keep the sample of a pinned object, whose outcome the GC reports again after the next
   minor collection.  Returns 0 if the sample is unknown. */
int tracked_pinned(int64_t key);
/* Remove the object of the last tracked_promoted(), because the GC has no memory to track
   it. */
void tracked_lost(void);
/* Count an object whose outcome is unknown; 'size' is as for recorder_young(). */
void tracked_not_known(int64_t key, int64_t size);
/* Note that the outcomes of all young objects were reported. */
void tracked_young_ended(void);
/* Begin the reports of a major collection.  tracked_freed() follows for each dead object,
   and then tracked_end(). */
void tracked_marked(void);
/* Remove the dead object with number 'which' in sample 'key'. */
void tracked_freed(int64_t key, int64_t which);
/* End the reports of a minor or major collection. */
void tracked_end(void);
/* Record the size of the old objects after a major collection has swept; the arguments are
   as for recorder_swept(). */
void tracked_swept(int64_t heap, int64_t heap_at_begin);

/* Record all tracked objects in the segment that has just begun.  Call it between
   recorder_begin_facts() and recorder_end_facts(). */
void tracked_inherit(void);

/* Return a copy of the tracked objects, without those that tracked_forget() has
   excluded.  The first word is the number of words that follow.  Each object has 7
   words: address, key, stack, size, live_size (hook.h), interval, and type.  Keys,
   stacks and types are numbers in the profile.  The caller frees the copy with free().
   Returns NULL if there is no memory.  Call it between recorder_begin_facts() and
   recorder_end_facts(). */
int64_t *tracked_copy(void);
/* Forget the present objects: exclude them from tracked_copy() and tracked_traced(). */
void tracked_forget(void);
/* Store the estimated bytes of the live objects, and the maximum of this estimate after any
   collection since tracked_clear() or tracked_reset_peak(). */
void tracked_traced(double *alive, double *peak);
/* Let the maximum of tracked_traced() start again from the present estimate. */
void tracked_reset_peak(void);
/* Return the number of objects that could not be tracked for lack of memory. */
int64_t tracked_missing(void);
