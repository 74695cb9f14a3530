#include "classes.h"

#include <string.h>

#include "class_names.h"
#include "gc_types.h"
#include "heap_walk.h"
#include "step_names.h"

/* Minimum number of instances of a class that is chosen as a retainer. */
#define LEAST_INSTANCES 64
/* A class is chosen only if at least 1/64 of the heap was reached through its instances. */
#define LEAST_SHARE     64
/* Maximum number of objects on the heap.  If instances of classes refer to each other at
   random, the third walk takes three times as long as the two walks before it, and the
   process has 25 seconds. */
#define MOST_OBJECTS    20000000
/* Number of objects whose headers are prefetched */
#define AHEAD           16
#define MOST_CLASSES    8192    /* entries of the hash table 'every', of which at most half
                                   are used; a power of two, ... */
#define IS_INSTANCE     0x8000  /* ... less than this flag of 'nearest' */

struct classes classes;
static struct instances *every;         /* hash table of all classes, by address */
static uint32_t class_count;

/* Return the *place* of an object's class: its index in 'every' plus 1.  Adds the class if
   it is new.  Returns 0 if the object is no instance of a class, or if the table is full.
   Modules and classes are instances, too, but do not count: all code is reachable
   through them. */
static uint32_t place_of(uint64_t object)
{
    const struct gc_type *type = gc_type_of(object);
    uint64_t its_class;
    uint32_t at;

    if (type->map < 0 || type->role == CLASS || type->role == MODULE)
        return 0;
    its_class = class_of(object, type);
    if (its_class == 0)
        return 0;
    for (at = (uint32_t)(its_class * 0x9e3779b97f4a7c15u >> 32); ; at++) {
        struct instances *one = &every[at % MOST_CLASSES];
        if (one->its_class == 0) {
            if (class_count == MOST_CLASSES / 2)
                return 0;
            class_count++;
            one->its_class = its_class;
            one->first = object;
        }
        if (one->its_class == its_class)
            return at % MOST_CLASSES + 1;
    }
}

/* Count the instances of all classes.  For each index in walk.met, 'nearest' gets the
   place of the class of the nearest instance on the way from the root to the object,
   including the object, or 0 if no instance is on the way.  IS_INSTANCE is set if the
   object is this instance.  Objects within nested instances of the same class count
   once, unless an instance of another class is between the two. */
static void count_instances(uint16_t *nearest)
{
    uint32_t at, place, above;

    for (at = 0; at < walk.frames_end; at++) {
        const struct met *met = walk_met(at);
        if (at + AHEAD < walk.frames_end)
            __builtin_prefetch((const void *)walk_met(at + AHEAD)->object);
        above = met->from == at ? 0 : nearest[met->from] & ~IS_INSTANCE;
        place = place_of(met->object);
        nearest[at] = (uint16_t)(place != 0 ? place | IS_INSTANCE : above);
        if (place != 0) {
            every[place - 1].count++;
            every[place - 1].through += place != above ? met->through : 0;
        }
    }
}

/* Choose the classes through whose instances the first walk reached the most words, and
   store their places. */
static void choose(uint32_t places[HELD_CLASSES])
{
    uint64_t most = (uint64_t)walk.bytes / 8;
    uint32_t i, best;
    int count;

    for (i = 0; i < MOST_CLASSES; i++) {
        if (every[i].count < LEAST_INSTANCES)
            every[i].through = 0;
        if (every[i].through > most)        /* nested instances were counted twice */
            every[i].through = most;
    }
    for (count = 0; count < HELD_CLASSES; count++) {
        for (best = i = 0; i < MOST_CLASSES; i++)
            if (every[i].through > every[best].through)
                best = i;
        if (every[best].through == 0 || every[best].through < most / LEAST_SHARE)
            return;
        classes.of[count] = every[best];
        places[count] = best + 1;
        every[best].through = 0;
    }
}

void classes_find(void)
{
    size_t size = walk.frames_end * sizeof(uint16_t) + 1;
    uint32_t at, places[HELD_CLASSES] = { 0 };
    uint16_t *nearest;
    uint64_t i;

    memset(&classes, 0, sizeof classes);
    room_begin(&classes.instances, sizeof(uint64_t), 1024);
    if (walk.objects > MOST_OBJECTS)
        return;
    class_count = 0;
    nearest = room_map(size);
    every = room_map(MOST_CLASSES * sizeof *every);
    count_instances(nearest);
    choose(places);
    for (at = 0; at < walk.frames_end; at++)
        for (i = 0; nearest[at] & IS_INSTANCE && i < HELD_CLASSES; i++)
            if (nearest[at] == (places[i] | IS_INSTANCE))
                room_add_word(&classes.instances, walk_met(at)->object | i);
    room_unmap(every, MOST_CLASSES * sizeof *every);
    room_unmap(nearest, size);
}

void classes_forget(void)
{
    room_end(&classes.instances);
}

int classes_which(uint64_t object)
{
    const struct gc_type *type = gc_type_of(object);
    uint64_t its_class = type->map >= 0 ? class_of(object, type) : 0;
    int which = HELD_CLASSES - 1;

    if (its_class == 0)
        return -1;
    while (which >= 0 && classes.of[which].its_class != its_class)
        which--;
    return which;
}

void classes_name(struct text *t, int which)
{
    text_add_c(t, "all instances of ");
    name_type(t, classes.of[which].first);
    text_add_c(t, TEXT_BETWEEN);
    name_type(t, classes.of[which].first);
}
