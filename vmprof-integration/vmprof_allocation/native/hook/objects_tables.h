#pragma once
/* The tables of sampled objects, for objects.c, which keeps them, and carried.c,
 * which reads them. */

#include <stddef.h>
#include <stdint.h>

#include "nursery.h"
#include "sampler.h"

struct waiting {
    uintptr_t start;
    int64_t key, stack, size, at, interval;
    enum nursery_place place;
};

struct young {
    uintptr_t object;           /* 0: it is not known which */
    int64_t key, stack, interval;
    int64_t size;               /* bytes that were reserved for it */
    int64_t live_size;          /* bytes that it takes: fewer if it was shrunk */
    int32_t type;
    int32_t which;
    int is_large, is_freed, is_old;
    int is_part;                /* of a piece of several objects */
};

struct tracked {
    uintptr_t object;
    int64_t key, stack, interval;
    int64_t size, live_size;    /* as in struct young */
    int32_t type;
    int32_t which;
};

extern struct objects {
    struct waiting *waiting;
    struct young *young;
    struct tracked *tracked;
    size_t waiting_count, young_count, tracked_count;
    size_t pinned_count;        /* the first of the young ones: the last minor
                                   collection left them where they are */
    size_t waiting_room, young_room, tracked_room;
    size_t left;                /* of those that wait, while they are looked at */
    size_t most_waiting, most_young, most_tracked;
    int tracks;
    struct sampler behind;      /* for the objects behind a holder */
    int fixed;
    int state;                  /* the GC's, when it was last seen */
    int64_t surprises;
    int64_t majors;
    int64_t lost;               /* there was no room for them */
    int64_t began;              /* the minor collection that is at work */
    int64_t marking_began;      /* the first minor collection that found it so */
    int large;                  /* young objects that it may free */
    int sees_free;              /* it does that through us */
    double alive, peak;         /* estimated bytes of those that are tracked */
    double not_known;           /* estimated bytes of which nobody knows */
    int64_t heap_at_begin;      /* heap_old_bytes() when what was young at the beginning
                                   had met its first minor collection; -1 until then */
} objects;
