#pragma once
/* The sample point, folded into incminimark's nursery check.
 *
 * The GC allocates by adding to nursery_free and comparing it with nursery_top.  Only
 * when this check fails does the GC call collect_and_reserve().  We lower nursery_top to
 * the sample point, so that the same check also finds out whether a sample is due, at no
 * cost:
 *
 *     nursery            nursery_free     nursery_top           real top
 *        v                    v            v                     v
 *        +--------------------+------------+---------------------+
 *        | used               |    gap     |                     |
 *        +--------------------+------------+---------------------+
 *                ^                          ^
 *                counted_from               the sampled byte
 *
 * The sampler keeps the *number* of bytes before the sampled byte (sampler.h).  The
 * address of the sample point is computed each time that nursery_top is lowered.  If the
 * point lies beyond this part of the nursery, nursery_top stays at the real top, and the
 * number is kept for the next part.
 *
 * Every function here runs with the GIL, in place of a function of the GC, and calls the
 * GC's function through 'original'.  While collect_and_reserve() or a minor collection
 * runs, nursery_top is always the real top, because the GC reads a pinned object there.
 *
 * The value that we store in nursery_top is never a multiple of 8, but addresses of
 * objects always are.  The GC's check has the same result.  If nursery_free is not a
 * multiple of 8, no object ends there: raw_malloc_memory_pressure() has set nursery_free
 * = nursery_top to request a collection.
 */

#include <stddef.h>
#include <stdint.h>

#include "sampler/sampler.h"

/* Whether allocations are sampled. */
enum nursery_phase {
    NURSERY_OFF,           /* our functions only call the original ones */
    NURSERY_RUNNING
};

/* The place of a sampled object in memory. */
enum nursery_place {
    NURSERY_SMALL,         /* in the nursery */
    NURSERY_LARGE,         /* outside of the nursery, but young */
    NURSERY_OLD            /* old from birth */
};

/* An object, or a batched allocation, that contains a sampled byte. */
struct nursery_sample {
    const char *start;     /* address of the GC's header of the first object */
    int64_t size;          /* size in bytes */
    int64_t at;            /* offset of the sampled byte from 'start' */
    int64_t interval;      /* mean bytes between two samples when the byte was chosen */
    enum nursery_place place;
};

/* The original functions of the GC, as addresses of their trampolines. */
struct nursery_original {
    void *(*collect_and_reserve)(void *gc, intptr_t size);
    void (*minor_collection)(void *gc);
    void *(*external_malloc)(void *gc, uintptr_t type, intptr_t length,
                             uintptr_t young);
};

/* The state of sampling in this process, which only the holder of the GIL changes, except
   for 'new_interval' and 'collect_every'. */
struct nursery {
    /* fields that prepare.c fills in */
    char **free;                    /* address of the GC's nursery_free */
    char **top;                     /* address of the GC's nursery_top */
    struct nursery_original original;
    int64_t (*large_size)(uintptr_t type, intptr_t length);    /* size in bytes */
    /* Take a sample.  No object exists yet at its start, so the callee must not read that
       memory before the next minor collection.  Returns the interval in bytes for the
       next gap. */
    int64_t (*take_sample)(const struct nursery_sample *sample);
    /* Return whether the allocations of the calling thread are ignored (hook_ignore()).
       If this field is NULL, no thread is ignored. */
    int (*is_ignored)(void);
    /* Called before and after each minor collection while allocations are sampled.
       Before the collection, all objects in the nursery are complete. */
    void (*before_collection)(void);
    void (*after_collection)(void);

    struct sampler sampler;
    volatile int64_t new_interval;  /* set by any thread; 0 if the interval does not
                                       change */
    enum nursery_phase phase;

    char *real_top;                 /* nursery_top as the GC has set it */
    char *placed_top;               /* nursery_top as we have set it */
    char *counted_from;             /* address up to which all bytes are accounted for */
    int inside;                     /* whether an original function of the GC is running */
    int wants_collection;           /* whether the next allocation in the nursery has to
                                       start a collection */
    volatile int64_t collect_every; /* Set by any thread.  When this number of bytes
                                       was allocated, the next sample point makes the
                                       nursery be collected.  If it is 0, the GC
                                       alone decides. */
    int64_t allocated_before;       /* value of 'allocated' at the last collection */
    int64_t young_large;            /* bytes of young objects outside of the nursery,
                                       since the last minor collection */

    /* statistics since nursery_start() */
    volatile int64_t allocated;     /* allocated bytes, as in hook_statistics */
    volatile int64_t collections;   /* calls of minor_collection */
    volatile int64_t pressures;     /* calls of raw_malloc_memory_pressure(); each one hid
                                       the bytes since counted_from */
    volatile int64_t surprises;     /* times that nursery_top was moved by unknown code */
};

extern struct nursery nursery;

/* The functions that run in place of the GC's functions of these names.  They call the
   GC's functions through nursery.original. */
void *nursery_collect_and_reserve(void *gc, intptr_t size);
void nursery_minor_collection(void *gc);
void *nursery_external_malloc(void *gc, uintptr_t type, intptr_t length,
                              uintptr_t young);

/* The caller of the following functions holds the GIL between two allocations, while no
   function of the GC runs. */

/* Set the statistics in struct nursery to 0.  They may be from an earlier session. */
void nursery_clear_statistics(void);

/* Start sampling: reset the statistics, and place the first sample point.  'interval' is
   in bytes.  If 'fixed' is true, all gaps have this length. */
void nursery_start(int64_t interval, uint64_t seed, int fixed);

/* Apply nursery.new_interval now.  Otherwise, the next call of a GC function that the
   engine replaces applies it. */
void nursery_update(void);

/* Make the next allocation in the nursery behave as if the nursery were full.  This
   allocation starts a collection, or continues after a pinned object.
   raw_malloc_memory_pressure() requests a collection in the same way. */
void nursery_collect_soon(void);

/* Stop sampling, and restore nursery_top.  From then on, our functions only call the GC's
   functions. */
void nursery_stop(void);
