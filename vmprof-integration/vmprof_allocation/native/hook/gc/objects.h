#pragma once
/* The sampled objects, from their birth to their death.
 *
 * A sample is taken when its bytes are reserved, before there is an object.  So
 * it *waits* for the next minor collection, before which all headers of the
 * nursery are valid.  The JIT may have reserved the bytes for several objects;
 * the *piece* is walked, from header to header:
 *
 *     sample's start                  sampled byte            end
 *        v                                 v                   v
 *        +------------+--------------------+---------+---------+
 *        | object     |       object       | object  | object  |
 *        +------------+--------------------+---------+---------+
 *                               ^
 *                             holder
 *
 * The *holder* of the sampled byte is sampled.  The sampler has drawn a new gap
 * at the end of the piece; what it would have drawn at the end of the holder
 * is drawn now, so that objects behind the holder may be sampled, too, each with
 * the probability of its own size.
 *
 * What stands in a piece has been written there since it was reserved, as its
 * memory is cleared then.  So where no header is, no object was made.  Behind a
 * string that is alone in its piece, this is what the string was *shrunk* by: it
 * was allocated with all the bytes of the piece, and is alive with those that it
 * takes now (live_size).  Elsewhere the program has left the JIT's trace before:
 * that remainder counts as an object of which nothing is known.
 *
 * An object without a field, as Python's object(), is allocated with 16 bytes, so
 * that there is room for a forwarding address, and is old with 8 (live_size).
 *
 * Behind the minor collection, an object of the nursery has left a forwarding
 * address there, or it is pinned, or it is dead; a large one was given back to
 * the C library meanwhile, or not.  Pinned ones stay where they are, and the next
 * minor collection is asked again.  Those that live on are *tracked*: old
 * objects do not move.  When a major collection has marked all that lives, and
 * before it sweeps, those without a mark are dead.  That moment is the first
 * minor collection of the sweeping phase, as incminimark begins each of its
 * major steps with a minor collection.  Nothing is kept alive by this, and an
 * address is forgotten before somebody else can get it.
 *
 * The GIL is held in all of these.
 */

#include <stddef.h>
#include <stdint.h>

#include "hook.h"
#include "nursery.h"

/* So many samples wait, or are tracked, at most; of more, nothing is known. */
#define OBJECTS_WAITING     ((size_t)1 << 20)
/* Young objects that one minor collection can tell apart: a batched allocation holds
   several */
#define OBJECTS_YOUNG       (2 * OBJECTS_WAITING)
#define OBJECTS_TRACKED    ((size_t)1 << 22)

void objects_prepare(const struct hook_place *place);

/* A profile begins; 'track': beyond the next minor collection.  Returns 0 or
   ENOMEM.  Nothing may be sampled yet; any thread. */
int objects_begin(uint64_t seed, int fixed, int track);

/* Write the types of young objects: no minor collection will.  Between two
   allocations. */
void objects_tell_waiting(void);

/* As objects_tell_waiting(), but they go on being tracked: the profile ends, and the next
   one says what becomes of them. */
void objects_tell_young(void);

/* The next profile has begun, with the recorder's pending samples: it is told which
   promoted objects are alive. */
void objects_inherit(void);

/* No more is to be known.  Harmless if it was done before. */
void objects_end(void);

/* A sample was taken. */
void objects_sampled(int64_t key, const struct nursery_sample *sample);

/* Around a minor collection; struct nursery's */
void objects_before_collection(void);
void objects_after_collection(void);

/* In place of libpypy's free(), while a minor collection with large objects is
   at work */
void objects_free(void *memory);

/* Forget those that there are, or the largest sum. */
void objects_clear(void);
void objects_reset_peak(void);

/* Estimated bytes of those that are tracked, and the most that there were
   after a minor collection */
void objects_traced(double *alive, double *peak);

/* Those that are tracked and have not ended, or the one with this 'address', for free();
   NULL if there is no memory */
struct hook_object *objects_copy(uint64_t address, int64_t *count);

/* How many there are; and a copy of them, in which 'stack' is a node: for
   recorder_stack_number() */
size_t objects_count(void);
void objects_copy_all(struct hook_object *to);

/* The program could no longer reach the copied objects for which
   is_garbage(number, context) is true.  Write that they ended at 'time'.  They are tracked
   until the GC frees them, because a weak reference or a finalizer may give one back to
   the program; the next call then writes that it has not ended.  A major collection may
   have freed some objects since they were copied; they end again, earlier. */
void objects_examined(const struct hook_object *copied, size_t count,
                      int (*is_garbage)(size_t number, const void *context),
                      const void *context, int64_t time);

/* How many there was no room for */
int64_t objects_lost(void);

/* Bytes that this has taken at most */
int64_t objects_memory(void);
