#pragma once
/* Allocation samples that wait for the first minor collection of their object, in which the
 * GC determines the outcome.
 *
 * A row of the profile has all facts of an object, so the sample is stored here until its
 * outcome is known.  At most one nursery of samples waits.  Samples arrive in the order of
 * their keys, and their outcomes in the same order.  Pinned objects are an exception: they
 * stay in the nursery, and a later collection finds their outcome.
 *
 * Call the functions with the recorder's lock.
 */

#include <stddef.h>
#include <stdint.h>

#include "records.h"

#pragma GCC visibility push(hidden)

/* Maximum number of samples that wait */
#define PENDING_MOST        ((size_t)1 << 20)

/* A sample that waits, and the progress of its rows in the profile */
struct pending {
    int64_t key;
    int64_t time;               /* nanoseconds since the profile began */
    int64_t size, interval;     /* size of the object, and sampling interval, in bytes */
    int64_t node;               /* node of its stack, or STACK_LOST */
    int64_t stack;              /* number of the stack in the profile */
    int64_t memory;             /* resident memory in KiB; 0 if unknown */
    int32_t thread, label;
    int32_t told;               /* number of its objects whose outcome was reported */
    int16_t is_done;            /* whether all outcomes were reported */
    int16_t is_young;           /* whether the profile has a row with the outcome
                                   OUTCOME_YOUNG */
};

/* Forget all waiting samples, and unmap the memory. */
void pending_clear(void);

/* Add a sample that waits for its outcome.  The caller has set its fields up to 'label'.
   If there is no memory, writes a row with an unknown outcome at once. */
void pending_add(const struct pending *sample, int64_t now);

/* Write the row of a sample that does not wait.  Its outcome is 'outcome'. */
void pending_alone(const struct pending *sample, int64_t now, enum outcome outcome);

/* The outcome of the next object of sample 'key'; see recorder_young().  'collection' is
   the number of the minor collection, and 'now' the time since which the row waits to be
   written. */
struct outcome_of {
    int64_t key;
    enum outcome outcome;
    int64_t type, size, live_size;
    int64_t collection, now;
};
/* Write the row of an object whose outcome is known.  Does nothing if the sample does
   not wait. */
void pending_told(const struct outcome_of *);

/* Remove the sample 'key' if it was added last, and write its row with an unknown outcome.
   The sample must have one object.  The time does not depend on the number of samples that
   wait. */
void pending_give_up(int64_t key, int64_t now);

/* Remove the samples whose outcomes were reported.  Call it after each minor collection. */
void pending_sweep(void);

/* Append a row of RECORD_WAITING for each waiting sample that has no row in this
   profile. */
void pending_put_waiting(void);

/* Return the key of the first waiting sample without a row in RECORD_OBJECTS, or 0 if there
   is no such sample. */
int64_t pending_first_key(void);

/* Write rows with the outcome OUTCOME_YOUNG for all waiting samples that have no row,
   because the profile ends. */
void pending_put_young(int64_t now);

/* Move the waiting samples to the next segment, which began 'later' nanoseconds after the
   previous segment.  'now' is the present time in nanoseconds. */
void pending_take_along(int64_t now, int64_t later);

/* Return the size of the memory for the samples in bytes. */
size_t pending_memory(void);

#pragma GCC visibility pop
