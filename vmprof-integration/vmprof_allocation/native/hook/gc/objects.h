#pragma once
/* The sampled objects, from birth to death.
 *
 * A sample is taken when its bytes are reserved, before there is an object.  The sample
 * *waits* for the next minor collection, before which all headers in the nursery are
 * valid.  The JIT may have reserved the bytes for several objects (a *batched
 * allocation*).  Such an allocation is walked from header to header:
 *
 *     sample's start                  sampled byte            end
 *        v                                 v                   v
 *        +------------+--------------------+---------+---------+
 *        | object     |       object       | object  | object  |
 *        +------------+--------------------+---------+---------+
 *                               ^
 *                         sampled object
 *
 * The object that contains the sampled byte is sampled.  When the sample was taken, the
 * sampler drew a new gap from the end of the batched allocation on.  The gap from the end
 * of the sampled object on is drawn now.  So later objects of the batched allocation may
 * be sampled too, each with the probability that follows from its size.
 *
 * The memory of a waiting sample is cleared when it is reserved, up to 4096 bytes.
 * Therefore, where there is no header, no object was made.  There are two reasons.  If the
 * allocation has only one object, which is a string, the string was *shrunk*.  It was
 * allocated with all bytes, and is alive with the bytes that it takes now (live_size).
 * Otherwise, the program left the JIT's trace before the object was made.  The remaining
 * bytes count as one unknown object.
 *
 * An object without fields, such as Python's object(), is allocated with 16 bytes, to
 * have room for a forwarding address.  When it is old, it takes 8 bytes (live_size).
 *
 * After the minor collection, an object of the nursery has left a forwarding address, or
 * it is pinned, or it is dead.  A large object was given back to the C library during the
 * collection, or it is alive.  Pinned objects stay in the nursery, and are examined again
 * at the next minor collection.  Surviving objects are *tracked*, because old objects do
 * not move.
 *
 * When a major collection has marked all live objects and not swept yet, tracked objects
 * without a mark are dead.  This moment is the first minor collection in the sweeping
 * phase, because incminimark begins each major step with a minor collection.  Tracking
 * keeps no object alive, and an address is forgotten before the GC can reuse it.
 *
 * The caller of each function has the GIL, unless stated otherwise.
 */

#include <stddef.h>
#include <stdint.h>

#include "hook.h"
#include "nursery.h"

/* Maximum numbers of waiting samples and of tracked objects.  The outcome of any further
   sample stays unknown. */
#define OBJECTS_WAITING     ((size_t)1 << 20)
/* Maximum number of young objects that one minor collection can distinguish.  A batched
   allocation contains several. */
#define OBJECTS_YOUNG       (2 * OBJECTS_WAITING)
#define OBJECTS_TRACKED    ((size_t)1 << 22)

/* Take the layout of objects from 'place'.  Call it once per process. */
void objects_prepare(const struct hook_place *place);

/* Begin a profile.  If 'track' is true, objects are followed beyond their first minor
   collection.  Call it before anything is sampled, in any thread.  Returns 0 or ENOMEM. */
int objects_begin(uint64_t seed, int fixed, int track);

/* Write the types of young objects at the end of sampling, because no further minor
   collection will.  Call it between two allocations. */
void objects_tell_waiting(void);

/* Write the types of young objects as objects_tell_waiting() does, and continue to track
   these objects.  Call it at a rotation: the next segment contains their outcomes. */
void objects_tell_young(void);

/* Write the live promoted objects into the profile that has just begun.  The recorder's
   pending samples belong to this profile, too. */
void objects_inherit(void);

/* Forget all objects, and give the memory back.  May be called again. */
void objects_end(void);

/* Add the sample 'key', which has just been taken, to the waiting samples. */
void objects_sampled(int64_t key, const struct nursery_sample *sample);

/* Examine the objects before and after a minor collection (struct nursery). */
void objects_before_collection(void);
void objects_after_collection(void);

/* Replace libpypy's free() during a minor collection, to find out which large objects are
   freed.  It also accepts calls without the GIL from outside of the GC. */
void objects_free(void *memory);

/* Forget all objects, and the peak of objects_traced(). */
void objects_clear(void);
/* Set the peak of objects_traced() to the present bytes. */
void objects_reset_peak(void);

/* Store the estimated bytes of the live objects that the tracked objects represent: the
   present bytes in '*alive', and the largest after a minor collection in '*peak'. */
void objects_traced(double *alive, double *peak);

/* Return a copy of the tracked objects that have not ended.  If 'address' is not 0, copies
   only the object at this address.  The caller must free() the copy.  '*count' becomes its
   length.  Returns NULL if there is not enough memory. */
struct hook_object *objects_copy(uint64_t address, int64_t *count);

/* Return the number of tracked objects. */
size_t objects_count(void);
/* Copy all tracked objects to 'to', an array of objects_count() elements.  In the copy,
   'stack' is a node, for recorder_stack_number(). */
void objects_copy_all(struct hook_object *to);

/* Record that copied objects have ended at 'time', because a heap snapshot found that the
 * program can no longer reach them.  These are the objects for which is_garbage(number,
 * context) is true.
 *
 * Ended objects are tracked until the GC frees them, because a weak reference or a
 * finalizer may give an object back to the program.  In that case, the next call records
 * that the object has not ended.  A major collection may have freed some objects since
 * they were copied.  The end of these objects is recorded again, with the earlier time.
 */
void objects_examined(const struct hook_object *copied, size_t count,
                      int (*is_garbage)(size_t number, const void *context),
                      const void *context, int64_t time);

/* Return the number of samples and objects for which the tables had no room. */
int64_t objects_lost(void);

/* Return the peak memory of the tables in bytes. */
int64_t objects_memory(void);
