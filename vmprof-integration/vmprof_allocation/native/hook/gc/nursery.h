#pragma once
/* The sample point, folded into incminimark's nursery check.
 *
 * The GC allocates by bumping nursery_free and comparing it with
 * nursery_top; only when that fails does it call collect_and_reserve().
 * We lower nursery_top to the sample point, so that the very same check
 * also asks "is a sample due?", for free:
 *
 *     nursery            nursery_free     nursery_top        real top
 *        v                    v            v                     v
 *        +--------------------+------------+---------------------+
 *        | used               |    gap     |                     |
 *        +--------------------+------------+---------------------+
 *                ^                          ^
 *                counted_from               the sampled byte
 *
 * What is kept is the *number* of bytes before the sampled byte (sampler.h);
 * the address is worked out anew each time the point is placed.  The point
 * lies in this part of the nursery or beyond it; in the second case
 * nursery_top stands at the real top and the number is carried over.
 *
 * Every function here runs with the GIL held, in place of one of the GC's
 * own functions, and calls that one through 'original'.  While
 * collect_and_reserve() or a minor collection runs, nursery_top is the real
 * one, always: it reads a pinned object there.
 *
 * nursery_top as we set it is never a multiple of 8, but objects always
 * are.  The check comes to the same, and one thing can be told apart:
 * if nursery_free is no multiple of 8, then no object ended there, but
 * raw_malloc_memory_pressure() set nursery_free = nursery_top to ask for a
 * collection.
 */

#include <stddef.h>
#include <stdint.h>

#include "sampler/sampler.h"

enum nursery_phase {
    NURSERY_OFF,           /* the original functions, and nothing else */
    NURSERY_RUNNING
};

enum nursery_place {
    NURSERY_SMALL,         /* in the nursery */
    NURSERY_LARGE,         /* outside of it, but young */
    NURSERY_OLD            /* old from birth */
};

struct nursery_sample {
    const char *start;     /* with the GC's header of the first object */
    int64_t size;          /* bytes */
    int64_t at;            /* the sampled byte, from 'start' on */
    int64_t interval;      /* mean bytes between two, when it was chosen */
    enum nursery_place place;
};

struct nursery_original {
    void *(*collect_and_reserve)(void *gc, intptr_t size);
    void (*minor_collection)(void *gc);
    void *(*external_malloc)(void *gc, uintptr_t type, intptr_t length,
                             uintptr_t young);
};

struct nursery {
    /* what prepare.c fills in */
    char **free;                    /* address of the GC's nursery_free */
    char **top;                     /* address of the GC's nursery_top */
    struct nursery_original original;
    int64_t (*large_size)(uintptr_t type, intptr_t length);    /* bytes */
    /* What stands at the sample's start is not an object yet: nobody may look
       before the next minor collection.  Returns the interval to go on with. */
    int64_t (*take_sample)(const struct nursery_sample *sample);
    /* what the calling thread does is not the program's; or NULL */
    int (*is_ignored)(void);
    /* around each minor collection while allocations are sampled: before it,
       all objects of the nursery are whole */
    void (*before_collection)(void);
    void (*after_collection)(void);

    struct sampler sampler;
    volatile int64_t new_interval;  /* set by any thread; 0: no change */
    enum nursery_phase phase;

    char *real_top;                 /* nursery_top as the GC set it */
    char *placed_top;               /* nursery_top as we set it */
    char *counted_from;             /* bytes below this one are accounted for */
    int inside;                     /* an original function is at work */
    int wants_collection;           /* nursery_collect_soon() */
    volatile int64_t collect_every; /* Set by any thread.  After this number of bytes, the
                                       next sample has the nursery collected.  If it is 0,
                                       the GC alone decides. */
    int64_t allocated_before;       /* value of 'allocated' at the last collection */
    int64_t young_large;            /* bytes outside of the nursery, since the last
                                       minor collection */

    /* statistics, since nursery_start() */
    volatile int64_t allocated;     /* bytes, from the GC's own pointers */
    volatile int64_t collections;   /* calls of minor_collection */
    volatile int64_t pressures;     /* each hid the bytes since counted_from */
    volatile int64_t surprises;     /* nursery_top was moved by someone else */
};

extern struct nursery nursery;

/* In place of the GC's functions */
void *nursery_collect_and_reserve(void *gc, intptr_t size);
void nursery_minor_collection(void *gc);
void *nursery_external_malloc(void *gc, uintptr_t type, intptr_t length,
                              uintptr_t young);

/* Each of these is called with the GIL held, between two allocations, while
   none of the GC's functions is at work. */

/* Forget the statistics of an earlier session */
void nursery_clear_statistics(void);

/* Reset the statistics, and place the first sample point */
void nursery_start(int64_t interval, uint64_t seed, int fixed);

/* Use 'new_interval' at once: otherwise the next entry does */
void nursery_update(void);

/* The next allocation in the nursery collects it, or goes behind a pinned object, as if
   it were full: so raw_malloc_memory_pressure() does it. */
void nursery_collect_soon(void);

/* Put nursery_top back; from then on, the functions above do nothing but call
   the GC's own. */
void nursery_stop(void);
