#pragma once
/* Allocation samples whose object no minor collection has met yet, and the rows of the
 * profile that say what became of it.
 *
 * A row holds all that is known of an object, so a sample waits here for its first minor
 * collection: a nursery's worth of them at most.  They come, and are told of, in the
 * order of their keys; but for pinned objects, which stay where they are, and of which a
 * later collection tells.
 */

#include <stddef.h>
#include <stdint.h>

#include "records.h"

#pragma GCC visibility push(hidden)

#define PENDING_MOST        ((size_t)1 << 20)

struct pending {
    int64_t key;
    int64_t time;               /* nanoseconds since the profile began */
    int64_t size, interval;     /* bytes */
    int64_t node;               /* of its stack, or STACK_LOST */
    int64_t stack;              /* what the profile calls that */
    int64_t memory;             /* KiB that were resident; 0: not known */
    int32_t thread, label;
    int32_t told;               /* of how many of its objects something was told */
    int16_t is_done;            /* nothing is to come */
    int16_t is_young;           /* the profile has a row that says that it is young */
};

/* Forget all, and give the memory back. */
void pending_clear(void);

/* Of a sample's fields, those up to 'label' are there.  One that waits for an outcome
   becomes a row as soon as that is known; if there is no room for it, now. */
void pending_add(const struct pending *sample, int64_t now);

/* A row, now, of a sample that waits for nothing */
void pending_alone(const struct pending *sample, int64_t now, enum outcome outcome);

/* What became of the next object of sample 'key' by the end of this minor collection,
   since which the row waits to be written.  See recorder_young(). */
struct outcome_of {
    int64_t key;
    enum outcome outcome;
    int64_t type, size, live_size;
    int64_t collection, now;
};
void pending_told(const struct outcome_of *);

/* Write the row of the sample that was added last: its outcome will not be known.  This
   takes the same time however many samples wait.  The sample must have one object. */
void pending_give_up(int64_t key, int64_t now);

/* All was told that this collection knows: those of which nothing is to come leave. */
void pending_sweep(void);

/* Rows of RECORD_WAITING, of those that have none in this profile */
void pending_put_waiting(void);

/* The key of the first of which no row says what became of it; 0: there is none */
int64_t pending_first_key(void);

/* The profile ends: rows that say that they are young. */
void pending_put_young(int64_t now);

/* They go on in the profile that has begun, so many nanoseconds after the one before. */
void pending_take_along(int64_t now, int64_t later);

/* Bytes that this takes */
size_t pending_memory(void);

#pragma GCC visibility pop
