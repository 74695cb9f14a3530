#define _GNU_SOURCE
#include "objects.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "invariant.h"
#include "malloc/raw_memory.h"
#include "nursery.h"
#include "patches/divert.h"
#include "recorder.h"
#include "sampler/sampler.h"
#include "table.h"
#include "types.h"

/* values of incminimark's gc_state */
enum { MARKING = 1, SWEEPING = 2 };

/* Card marks may precede an array of more than CARD_ITEMS pointers.  They have one bit for
   each CARD_ITEMS items, and fill whole words. */
#define CARD_ITEMS          128

/* The object of a waiting sample is no longer in a cache of the processor.  While one
   sample is examined, the object of the sample AHEAD places later is prefetched. */
#define AHEAD               8

/* Bytes that are cleared at the beginning of an allocation.  The objects that the JIT puts
   beyond them in a batched allocation are too few to be worth the time. */
#define CLEARED             4096

/* bytes of the smallest object in the nursery */
#define SMALLEST            16

/* The layout of objects (hook_place), and the address of gc_state, which is 0 if outcomes
   cannot be found. */
static struct {
    uintptr_t gc_state;
    uint64_t visited, pinned, has_cards;
    int has_free;
    int64_t forwarded;
} place;

/* A sample that waits for the next minor collection.  'size' and 'at' are in bytes, and
   'stack' is a node of the recorder. */
struct waiting {
    uintptr_t start;
    int64_t key, stack, size, at, interval;
    enum nursery_place place;
};

/* A young sampled object at a minor collection.  'which' is its number among the sampled
   objects of its sample. */
struct young {
    uintptr_t object;           /* 0 if the object is unknown */
    int64_t key, stack, interval;
    int64_t size;               /* bytes that were reserved for the object */
    int64_t live_size;          /* bytes that the object takes; fewer than 'size' if it
                                   was shrunk */
    int32_t type;
    int32_t which;
    int is_large, is_freed, is_old;
    int is_part;                /* whether it is one of several objects of a batched
                                   allocation */
};

/* A sampled object that has survived a minor collection. */
struct tracked {
    uintptr_t object;
    int64_t key, stack, interval;
    int64_t size, live_size;    /* as in struct young */
    int32_t type;
    unsigned which : 31;
    unsigned is_ended : 1;      /* whether the last heap snapshot did not reach it */
};

/* The sampled objects of the present profile.  For each table, '..._count' is the number
   of entries, '..._room' the allocated number, and 'most_...' the largest number so far. */
static struct objects {
    struct waiting *waiting;
    struct young *young;
    struct tracked *tracked;
    size_t waiting_count, young_count, tracked_count;
    size_t pinned_count;        /* number of pinned objects, which the last minor
                                   collection has not moved; they are the first ones
                                   in 'young' */
    size_t waiting_room, young_room, tracked_room;
    size_t left;                /* waiting samples that have not been examined yet */
    size_t most_waiting, most_young, most_tracked;
    int tracks;
    struct sampler behind;      /* sampler for the later objects of a batched allocation */
    int fixed;
    int state;                  /* gc_state when it was last read */
    int64_t surprises;
    int64_t majors;
    int64_t lost;               /* samples and objects for which a table had no room */
    int64_t began;              /* start of the running minor collection */
    int64_t marking_began;      /* start of the first minor collection in the marking
                                   phase */
    int large;                  /* young large objects that a minor collection may free */
    int sees_free;              /* whether the running minor collection frees large
                                   objects through objects_free() */
    double alive, peak;         /* estimated bytes of the tracked objects, now and at
                                   the peak */
    double not_known;           /* estimated bytes of objects whose outcome is unknown */
    int64_t heap_at_begin;      /* heap_old_bytes() after the first minor collection of
                                   the profile; -1 before this collection */
} objects;

static int64_t word_at(uintptr_t address)
{
    int64_t word;

    memcpy(&word, (const void *)address, sizeof word);
    return word;
}

void objects_prepare(const struct hook_place *p)
{
    if (p->gc == 0 || p->gc_state < 0 || p->flag_visited == 0 || p->flag_pinned == 0 ||
        p->forwarded == 0 || !types_are_known())
        return;
    place.gc_state = p->gc + (uintptr_t)p->gc_state;
    place.visited = p->flag_visited;
    place.pinned = p->flag_pinned;
    place.has_free = p->slot[DIVERT_FREE] != 0;
    place.has_cards = p->flag_visited << 4;     /* GCFLAG_HAS_CARDS, in all versions
                                                   of incminimark */
    place.forwarded = p->forwarded;
}

int hook_knows_objects(void)
{
    return place.gc_state != 0;
}

static int gc_state(void)
{
    int state;

    memcpy(&state, (const void *)place.gc_state, sizeof state);
    return state;
}

/* ____________________________________________________________ */
/* beginning and end of a profile */

#define HAS_ROOM(name, most) \
    table_has_room((void **)&objects.name, &objects.name##_room, \
                   objects.name##_count, sizeof *objects.name, most)

void objects_end(void)
{
    recorder_expect_outcomes(0);
    table_give_back(objects.waiting, objects.waiting_room, sizeof *objects.waiting);
    table_give_back(objects.young, objects.young_room, sizeof *objects.young);
    table_give_back(objects.tracked, objects.tracked_room, sizeof *objects.tracked);
    objects.waiting = NULL;
    objects.young = NULL;
    objects.tracked = NULL;
    objects.waiting_room = objects.young_room = objects.tracked_room = 0;
    objects.waiting_count = objects.young_count = objects.tracked_count = 0;
    objects.pinned_count = 0;
}

int objects_begin(uint64_t seed, int fixed, int track)
{
    objects_end();
    memset(&objects, 0, sizeof objects);
    if (place.gc_state == 0)
        return 0;
    if (!HAS_ROOM(waiting, OBJECTS_WAITING) ||
        !HAS_ROOM(young, OBJECTS_YOUNG) ||
        !HAS_ROOM(tracked, OBJECTS_TRACKED)) {
        objects_end();
        return ENOMEM;
    }
    /* a separate sampler, so that tracking does not change the choice of samples */
    sampler_start(&objects.behind, 1, seed + 1, fixed);
    objects.fixed = fixed;
    objects.tracks = track;
    objects.state = gc_state();
    objects.marking_began = recorder_now();     /* the latest possible time if the GC
                                                   is marking already */
    objects.heap_at_begin = -1;
    types_begin();
    recorder_expect_outcomes(1);
    return 0;
}

int64_t objects_memory(void)
{
    return (int64_t)(recorder_memory() +
                     objects.most_waiting * sizeof *objects.waiting +
                     objects.most_young * sizeof *objects.young +
                     objects.most_tracked * sizeof *objects.tracked);
}

static void note_most(size_t *most, size_t count)
{
    if (*most < count)
        *most = count;
}

static double probability(int64_t size, int64_t interval)
{
    double share = (double)size / (double)interval;

    return !objects.fixed ? -expm1(-share) : share < 1.0 ? share : 1.0;
}

/* Return the estimated live bytes that a tracked object represents.  They are the bytes
   that it takes, divided by the probability with which it was sampled.  This probability
   follows from its size at birth (vmprof_convert's estimator.py). */
static double weight(const struct tracked *tracked)
{
    return (double)tracked->live_size / probability(tracked->size,
                                                     tracked->interval);
}

static void add_alive(const struct tracked *tracked, double sign)
{
    objects.alive += sign * weight(tracked);
}

/* Count an object of 'size' bytes whose outcome will stay unknown. */
static void count_not_known(int64_t size, int64_t interval)
{
    objects.not_known += (double)size / probability(size, interval);
}

/* ____________________________________________________________ */
/* new samples */

void objects_sampled(int64_t key, const struct nursery_sample *sample)
{
    struct waiting *waiting;

    if (objects.waiting == NULL)
        return;
    if (!HAS_ROOM(waiting, OBJECTS_WAITING)) {
        objects.lost++;
        count_not_known(sample->size, sample->interval);
        recorder_give_up(key);
        return;
    }
    waiting = &objects.waiting[objects.waiting_count++];
    waiting->start = (uintptr_t)sample->start;
    waiting->key = key;
    waiting->stack = recorder_sampled_stack();
    waiting->size = sample->size;
    waiting->at = sample->at;
    waiting->interval = sample->interval;
    waiting->place = sample->place;
    if (sample->place == NURSERY_SMALL)
        memset((void *)(uintptr_t)sample->start, 0, (size_t)(
            sample->size < CLEARED ? sample->size : CLEARED));
    note_most(&objects.most_waiting, objects.waiting_count);
}

/* ____________________________________________________________ */
/* before a minor collection */

/* The type of the object at some address, and the bytes that it takes when it is old.
   The bytes are 0 if there is no object. */
struct found {
    struct type *type;
    int64_t old_size;
};

static struct found find_object(uintptr_t object)
{
    struct type *type = types_of(object);
    struct found found = { type, types_old_size(type, object) };

    return found;
}

/* Add a young object of a waiting sample.  Its address is 'object', or 0 if it is unknown.
   Returns NULL if the table has no room. */
static struct young *new_young(const struct waiting *waiting, uintptr_t object,
                               struct type *type)
{
    struct young *young;

    /* each sample that is still waiting needs an entry */
    if (objects.young_count + objects.left >= OBJECTS_YOUNG ||
        !HAS_ROOM(young, OBJECTS_YOUNG)) {
        objects.lost++;
        return NULL;
    }
    young = &objects.young[objects.young_count++];
    memset(young, 0, sizeof *young);
    young->object = object;
    young->key = waiting->key;
    young->stack = waiting->stack;
    young->interval = waiting->interval;
    young->size = young->live_size = waiting->size;
    young->type = (int32_t)types_number(type, object);
    return young;
}

/* Return whether the allocation of a waiting sample is a single object, which may have
   been shrunk since. */
static int is_one(const struct waiting *waiting, const struct found *found)
{
    int64_t size = types_young_size(found->old_size);

    if (size <= 0 || size >= waiting->size)
        return size == waiting->size;
    return types_may_shrink(found->type) &&
           (size >= CLEARED ||
            word_at(waiting->start + (uintptr_t)size) == 0);
}

/* Find the type and the size of the object at 'object', in a batched allocation that ends
   at 'end'.  Returns the size in bytes.  If there is no object, returns the number of the
   remaining bytes, and found->type is NULL. */
static int64_t find_part(uintptr_t object, uintptr_t end, struct found *found)
{
    int64_t rest = (int64_t)(end - object), size;

    *found = find_object(object);
    size = types_young_size(found->old_size);
    if (size > 0 && size <= rest)
        return size;
    found->type = NULL;
    return rest;
}

/* Return whether the headers in a batched allocation are reliable.  Beyond its cleared
   beginning, old bytes may look like headers.  A longer allocation is therefore only
   reliable if it consists of objects up to its end. */
static int is_believable(const struct waiting *waiting)
{
    uintptr_t object = waiting->start, end = object + (uintptr_t)waiting->size;
    struct found found = { NULL, 0 };

    if (waiting->size <= CLEARED)
        return 1;
    do
        object += (uintptr_t)find_part(object, end, &found);
    while (object < end && found.type != NULL);
    return found.type != NULL;
}

/* Return 1 if the table of young objects has room for all objects of a batched
   allocation.  The caller must check this before it chooses the sampled objects: dropping
   some of the chosen objects would bias the totals. */
static int has_room_for_parts(const struct waiting *waiting)
{
    size_t needed = objects.young_count + (size_t)waiting->size / SMALLEST;

    if (needed + objects.left > OBJECTS_YOUNG)
        return 0;
    while (objects.young_room < needed)
        if (!table_has_room((void **)&objects.young, &objects.young_room,
                            objects.young_room, sizeof *objects.young, OBJECTS_YOUNG))
            return 0;
    return 1;
}

/* Find the sampled objects of a batched allocation.  After each one, a gap is drawn from
   the end of the object on. */
static void walk_piece(const struct waiting *waiting)
{
    uintptr_t object = waiting->start;
    uintptr_t end = object + (uintptr_t)waiting->size;
    struct sampler *behind = &objects.behind;
    struct young *young;
    struct found found;
    int64_t size;
    int which = 0;

    /* while another sample point lies in the allocation */
    for (behind->gap = waiting->at; behind->gap < (int64_t)(end - object);
         object += (uintptr_t)size) {
        size = find_part(object, end, &found);
        if (behind->gap >= size) {
            behind->gap -= size;
            continue;
        }
        sampler_next_within(behind, size, waiting->interval,
                            (int64_t)(end - object) - size);
        young = new_young(waiting, found.type != NULL ? object : 0, found.type);
        if (young != NULL) {
            young->is_part = size != waiting->size;
            young->size = size;
            young->live_size = found.type != NULL ? found.old_size : size;
            young->which = which++;
        }
    }
}

/* Examine a waiting sample whose memory is in the nursery. */
static void look_at_small(const struct waiting *waiting)
{
    struct found found = find_object(waiting->start);
    struct young *young;

    if (is_one(waiting, &found)) {
        young = new_young(waiting, waiting->start, found.type);
        if (young != NULL)
            young->live_size = found.old_size;
    }
    else if (!has_room_for_parts(waiting)) {
        /* One unknown object represents all bytes.  new_young() counts its own failure. */
        objects.lost += new_young(waiting, 0, NULL) != NULL;
    }
    else if (is_believable(waiting))
        walk_piece(waiting);
    else
        (void)new_young(waiting, 0, NULL);
}

/* Examine a waiting sample whose object is outside of the nursery. */
static void look_at_large(const struct waiting *waiting)
{
    struct young *young = new_young(waiting, waiting->start, types_of(waiting->start));

    if (young == NULL)
        return;
    young->is_large = waiting->place == NURSERY_LARGE;
    young->is_old = waiting->place == NURSERY_OLD;
    objects.large += young->is_large;
}

/* Examine a waiting sample: its objects become young objects. */
static void look_at(const struct waiting *waiting)
{
    size_t before = objects.young_count;

    if (waiting->place == NURSERY_SMALL)
        look_at_small(waiting);
    else
        look_at_large(waiting);
    if (objects.young_count == before) {        /* the table has no room */
        recorder_young(waiting->key, OUTCOME_NOT_KNOWN, 0, 0, 0);
        count_not_known(waiting->size, waiting->interval);
    }
}

static void forget_all(void)
{
    objects.waiting_count = objects.young_count = objects.tracked_count = 0;
    objects.pinned_count = 0;
    objects.alive = 0.0;
}

/* Forget all objects, because the GC has moved or freed some of them unnoticed. */
static void lose_all(void)
{
    size_t i;

    for (i = 0; i < objects.pinned_count; i++) {
        recorder_young(objects.young[i].key, OUTCOME_NOT_KNOWN, 0, 0, 0);
        count_not_known(objects.young[i].size, objects.young[i].interval);
    }
    for (i = 0; i < objects.waiting_count; i++) {
        recorder_young(objects.waiting[i].key, OUTCOME_NOT_KNOWN, 0, 0, 0);
        count_not_known(objects.waiting[i].size, objects.waiting[i].interval);
    }
    for (i = 0; i < objects.tracked_count; i++) {
        if (objects.tracked[i].is_ended)
            continue;
        recorder_lost(objects.tracked[i].key, (int)objects.tracked[i].which);
        count_not_known(objects.tracked[i].size, objects.tracked[i].interval);
    }
    forget_all();
    types_major_collection();           /* there may have been a major collection */
}

static void forget_dead(const struct tracked *tracked)
{
    if (tracked->is_ended)
        return;
    recorder_freed(tracked->key, (int)tracked->which);
    add_alive(tracked, -1.0);
}

/* Record and forget the tracked objects that the GC has not marked, because they are dead.
   Call it when marking is complete and nothing has been swept. */
static void judge(void)
{
    size_t i, kept = 0;

    for (i = 0; i < objects.tracked_count; i++) {
        struct tracked *tracked = &objects.tracked[i];
        if ((uint64_t)word_at(tracked->object) & place.visited)
            objects.tracked[kept++] = *tracked;
        else
            forget_dead(tracked);
    }
    objects.tracked_count = kept;
    if (kept == 0)
        objects.alive = 0.0;     /* no rounding errors */
    types_major_collection();
    if (nursery.is_ignored != NULL && nursery.is_ignored())
        return;             /* we have requested this collection, not the program */
    objects.majors++;
    recorder_marked(objects.majors, objects.marking_began);
}

/* Read the size and the type of a pinned object again.  Since the last minor collection,
   the object may have been shrunk, and its class renamed. */
static void look_at_pinned(struct young *young)
{
    struct type *type = types_of(young->object);

    young->live_size = types_old_size(type, young->object);
    young->type = (int32_t)types_number(type, young->object);
}

static void look_at_waiting(void)
{
    size_t i;

    objects.young_count = objects.pinned_count;
    objects.large = 0;
    for (i = 0; i < objects.pinned_count; i++)
        look_at_pinned(&objects.young[i]);
    for (i = 0; i < objects.waiting_count; i++) {
        if (i + AHEAD < objects.waiting_count)
            __builtin_prefetch((const void *)objects.waiting[i + AHEAD].start);
        objects.left = objects.waiting_count - i - 1;
        look_at(&objects.waiting[i]);
    }
    objects.waiting_count = 0;
    note_most(&objects.most_young, objects.young_count);
}

/* Write the bytes of the old objects after a sweep.  At this time, before a minor
   collection, the GC also counts large young objects as old ones. */
static void tell_swept(void)
{
    int64_t heap = heap_old_bytes();

    recorder_swept(heap < 0 ? heap : heap - nursery.young_large, objects.heap_at_begin,
                   objects.alive, objects.not_known);
}

void objects_before_collection(void)
{
    int state;

    if (objects.waiting == NULL)
        return;
    objects.began = recorder_now();
    state = gc_state();
    if (!recorder_begin_facts(nursery.collections)) {
        forget_all();
        return;
    }
    if (objects.surprises != nursery.surprises)
        lose_all();
    objects.surprises = nursery.surprises;
    if (state == MARKING && objects.state != MARKING)
        objects.marking_began = objects.began;
    if (state == SWEEPING && objects.state == MARKING)
        judge();
    if (state != SWEEPING && objects.state == SWEEPING && objects.tracks)
        tell_swept();
    objects.state = state;
    look_at_waiting();
    recorder_end_facts();
    objects.sees_free = objects.large > 0 && place.has_free &&
                        divert_set(DIVERT_FREE, 1) == 0;
}

/* ____________________________________________________________ */
/* during a minor collection */

/* Return whether 'memory' is the malloc() block of the large object at 'object'.  Card
   marks may precede the object in its block. */
static int is_memory_of(uintptr_t memory, uintptr_t object)
{
    if (memory >= object)
        return memory == object;
    return ((uint64_t)word_at(object) & place.has_cards) != 0 &&
           object - memory <= (uintptr_t)find_object(object).old_size / 8 / CARD_ITEMS /
                              8 + 8;
}

void objects_free(void *memory)
{
    size_t i;
    /* A caller outside of the GC may lack the GIL.  Then the table may change, and the GC
       may unmap the objects. */
    int left = raw_memory_gc_depth > 0 ? objects.large : 0;

    for (i = 0; left > 0 && i < objects.young_count; i++) {
        struct young *young = &objects.young[i];
        if (!young->is_large)
            continue;
        left--;
        if (!young->is_freed &&
            is_memory_of((uintptr_t)memory, young->object))
            young->is_freed = 1;
    }
    raw_memory_free(memory);
}

/* ____________________________________________________________ */
/* after a minor collection */

/* Track an object that has survived a minor collection, at its new address. */
static void track(const struct young *young, uintptr_t object)
{
    struct tracked *tracked;

    if (!objects.tracks)
        return;
    if (!HAS_ROOM(tracked, OBJECTS_TRACKED)) {
        objects.lost++;
        count_not_known(young->size, young->interval);
        recorder_lost(young->key, young->which);
        return;
    }
    tracked = &objects.tracked[objects.tracked_count++];
    tracked->object = object;
    tracked->key = young->key;
    tracked->which = (unsigned)young->which;
    tracked->is_ended = 0;
    tracked->stack = young->stack;
    tracked->interval = young->interval;
    tracked->size = young->size;
    tracked->live_size = young->live_size;
    tracked->type = young->type;
    add_alive(tracked, 1.0);
    note_most(&objects.most_tracked, objects.tracked_count);
}

/* Write the outcome of a young object, its type, and its sizes if they differ from the
   sample's. */
static void tell_of(const struct young *young, enum outcome outcome)
{
    int is_alive;

    if (!objects.tracks && outcome != OUTCOME_YOUNG_NOT_KNOWN)
        outcome = OUTCOME_NOT_KNOWN;
    if (outcome == OUTCOME_NOT_KNOWN)
        count_not_known(young->size, young->interval);
    is_alive = outcome == OUTCOME_PROMOTED || outcome == OUTCOME_YOUNG;
    recorder_young(young->key, outcome, young->type,
                   young->is_part ? young->size : 0,
                   is_alive && young->live_size != young->size ? young->live_size : 0);
}

/* Write the outcome of a young object.  Returns 1 if the object is pinned, so that its
   outcome depends on the next minor collection. */
static int tell(const struct young *young)
{
    enum outcome outcome = OUTCOME_DIED;
    uintptr_t object = young->object;
    int64_t header;

    if (object == 0 || (young->is_large && !objects.sees_free))
        outcome = OUTCOME_NOT_KNOWN;
    else if (young->is_large || young->is_old)
        outcome = young->is_freed ? OUTCOME_DIED : OUTCOME_PROMOTED;
    else {
        header = word_at(object);
        if (header == place.forwarded) {
            outcome = OUTCOME_PROMOTED;
            object = (uintptr_t)word_at(object + sizeof header);
        }
        else if ((uint64_t)header & place.pinned) {
            /* the JIT puts no pinned object into a batched allocation */
            if (!young->is_part && objects.tracks)
                return 1;
            outcome = OUTCOME_NOT_KNOWN;
        }
    }
    tell_of(young, outcome);
    if (outcome == OUTCOME_PROMOTED)
        track(young, object);
    return 0;
}

void objects_after_collection(void)
{
    size_t i, pinned = 0;

    if (objects.waiting == NULL)
        return;
    if (objects.sees_free)
        (void)divert_set(DIVERT_FREE, 0);
    objects.large = 0;
    if (objects.heap_at_begin < 0)
        objects.heap_at_begin = heap_old_bytes();
    if (!recorder_begin_facts(nursery.collections))
        return;
    for (i = 0; i < objects.young_count; i++)
        if (tell(&objects.young[i]))
            objects.young[pinned++] = objects.young[i];
    objects.young_count = objects.pinned_count = pinned;
    if (objects.peak < objects.alive)
        objects.peak = objects.alive;
    recorder_collected(objects.began, nursery.allocated);
    recorder_end_facts();
}

/* Write the types of the objects of waiting samples, and of pinned objects, with
   OUTCOME_YOUNG.  The outcome is 'otherwise' for unknown objects, or if outcomes are not
   recorded. */
static void tell_waiting(enum outcome otherwise)
{
    size_t i;

    if (objects.waiting == NULL || objects.surprises != nursery.surprises ||
        !recorder_begin_facts(nursery.collections))
        return;
    look_at_waiting();
    for (i = 0; i < objects.young_count; i++)
        tell_of(&objects.young[i], objects.young[i].object != 0 && objects.tracks
                    ? OUTCOME_YOUNG : otherwise);
    objects.young_count = objects.pinned_count;
    objects.large = 0;
    recorder_end_facts();
}

void objects_tell_waiting(void)
{
    tell_waiting(OUTCOME_NOT_KNOWN);
    objects.young_count = objects.pinned_count = 0;
}

void objects_tell_young(void)
{
    size_t count = objects.waiting_count;
    struct sampler behind = objects.behind;

    tell_waiting(OUTCOME_YOUNG_NOT_KNOWN);
    /* the waiting samples stay in place, and will be examined again with the same result */
    objects.waiting_count = count;
    objects.behind = behind;
}

void objects_inherit(void)
{
    size_t i, kept = 0;

    if (objects.waiting == NULL)
        return;
    types_begin();
    if (!objects.tracks || !recorder_begin_facts(nursery.collections))
        return;
    for (i = 0; i < objects.tracked_count; i++) {
        struct tracked *tracked = &objects.tracked[kept];
        if (objects.tracked[i].is_ended)
            continue;
        *tracked = objects.tracked[i];
        kept++;
        tracked->type = (int32_t)types_number(types_of(tracked->object), tracked->object);
        struct inherited object = {
            tracked->key, tracked->stack, tracked->size, tracked->live_size,
            tracked->interval, tracked->type, (int)tracked->which
        };
        recorder_inherited(&object);
    }
    objects.tracked_count = kept;
    recorder_end_facts();
}

/* ____________________________________________________________ */
/* live objects */

void objects_clear(void)
{
    forget_all();
    objects.peak = 0.0;
}

void objects_reset_peak(void)
{
    objects.peak = objects.alive;
}

void objects_traced(double *alive, double *peak)
{
    *alive = objects.alive;
    *peak = objects.peak > objects.alive ? objects.peak : objects.alive;
}

static void copy_one(const struct tracked *tracked, int64_t stack, struct hook_object *to)
{
    to->address = tracked->object;
    to->key = tracked->key;
    to->which = tracked->which;
    to->stack = stack;
    to->size = tracked->size;
    to->live_size = tracked->live_size;
    to->interval = tracked->interval;
    to->type = tracked->type;
    to->is_ended = tracked->is_ended;
}

size_t objects_count(void)
{
    return objects.tracked_count;
}

void objects_copy_all(struct hook_object *to)
{
    size_t i;

    for (i = 0; i < objects.tracked_count; i++)
        copy_one(&objects.tracked[i], objects.tracked[i].stack, to++);
}

void objects_examined(const struct hook_object *copied, size_t count,
                      int (*is_garbage)(size_t number, const void *context),
                      const void *context, int64_t time)
{
    size_t i = 0, number;

    if (!recorder_begin_facts(nursery.collections))
        return;
    /* The copy and the table have the same order.  The GC may have freed some of the copied
       objects, and new objects are at the end of the table. */
    for (number = 0; number < count; number++) {
        const struct hook_object *object = &copied[number];
        struct tracked *tracked = &objects.tracked[i];
        int is_tracked = i < objects.tracked_count && tracked->key == object->key &&
                         tracked->which == object->which;
        int has_ended = is_garbage(number, context);
        i += (size_t)is_tracked;
        if (has_ended == object->is_ended)
            continue;
        if (has_ended)
            recorder_freed_at(object->key, (int)object->which, time);
        else if (is_tracked)
            recorder_reached_again(object->key, (int)object->which, time);
        if (is_tracked) {
            tracked->is_ended = has_ended != 0;
            add_alive(tracked, has_ended ? -1.0 : 1.0);
        }
    }
    recorder_end_facts();
}

struct hook_object *objects_copy(uint64_t address, int64_t *count)
{
    size_t most = address != 0 ? 1 : objects.tracked_count + 1, i;
    struct hook_object *copy = malloc(most * sizeof *copy), *next = copy;

    *count = 0;
    if (copy == NULL)
        return NULL;
    for (i = 0; i < objects.tracked_count; i++) {
        const struct tracked *tracked = &objects.tracked[i];
        if (address != 0 ? address != tracked->object : tracked->is_ended)
            continue;
        copy_one(tracked, recorder_stack_number(tracked->stack), next++);
        if (address != 0)
            break;
    }
    *count = next - copy;
    return copy;
}

int64_t objects_lost(void)
{
    return objects.lost;
}
