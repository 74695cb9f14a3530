#define _GNU_SOURCE
#include "tracked.h"

#include <math.h>
#include <stdlib.h>

#include "recorder.h"
#include "table.h"
#include "type_names.h"

/* The GC's limits: MAX_WAITING in sampled_objects.py, MAX_TRACKED in sampled_outcomes.py */
#define MOST_WAITING    ((size_t)1 << 18)
#define MOST_TRACKED   ((size_t)1 << 20)

/* A sample whose outcome is not reported yet */
struct waiting {
    int64_t key, stack, size, interval;
};

/* A promoted object */
struct tracked {
    int64_t key, stack, interval, address;
    int64_t size, live_size;    /* bytes when it was allocated, and after it was shrunk */
    int32_t type, its_class;    /* the GC's number of the type, and the interpreter's
                                   number of the class */
    int32_t which;
    int32_t is_forgotten;
};

#define COPIED          7       /* words per object in tracked_copy() */

static struct waiting *waiting;
static struct tracked *tracked;
static size_t waiting_count, waiting_room, tracked_count, tracked_room;
static size_t at;               /* index in 'waiting' of the GC's present report */
static size_t pinned;           /* number of samples before 'at' that stay in 'waiting' */
static size_t seen, kept;       /* after a marking: number of objects in 'tracked' that the
                                   reports have passed, and number of survivors of these */
static int has_marked;          /* whether a major collection's reports are in progress */
static int64_t most_memory, missing;    /* results of tracked_memory(), tracked_missing() */
static int has_fixed_gaps;
static double alive, most_alive;        /* estimated bytes of live objects, and maximum */
static double not_known;                /* estimated bytes with unknown outcome */

void tracked_clear(int fixed_gaps)
{
    table_give_back(waiting, waiting_room, sizeof *waiting);
    table_give_back(tracked, tracked_room, sizeof *tracked);
    waiting = NULL;
    tracked = NULL;
    waiting_count = waiting_room = tracked_count = tracked_room = 0;
    at = pinned = 0;
    has_marked = 0;
    most_memory = missing = 0;
    has_fixed_gaps = fixed_gaps;
    alive = most_alive = not_known = 0.0;
}

int64_t tracked_memory(void)
{
    return most_memory;
}

/* Grow a full table by table_has_room(), and update 'most_memory'.  Returns 0 if there
   is no memory. */
static int grow(void *table, size_t *room, size_t size, size_t most)
{
    int64_t now;

    if (!table_has_room(table, room, *room, size, most))
        return 0;
    now = (int64_t)(waiting_room * sizeof *waiting +
                    tracked_room * sizeof *tracked);
    if (most_memory < now)
        most_memory = now;
    return 1;
}

void tracked_sampled(int64_t key, int64_t stack, int64_t size, int64_t interval)
{
    struct waiting *sample;

    if (waiting_count == waiting_room &&
        !grow(&waiting, &waiting_room, sizeof *waiting, MOST_WAITING))
        return;
    sample = &waiting[waiting_count++];
    sample->key = key;
    sample->stack = stack;
    sample->size = size;
    sample->interval = interval;
}

static double probability(int64_t size, int64_t interval)
{
    double share = (double)size / (double)interval;

    return !has_fixed_gaps ? -expm1(-share) : share < 1.0 ? share : 1.0;
}

static void add_alive(const struct tracked *object, double sign)
{
    if (!object->is_forgotten)
        alive += sign * (double)object->live_size /
                 probability(object->size, object->interval);
}

static void count_not_known(int64_t size, int64_t interval)
{
    not_known += (double)size / probability(size, interval);
}

/* Advance 'at' to the sample of this key, and return whether it was found.  The GC reports
   the samples in the order of their keys. */
static int is_at(int64_t key)
{
    while (at < waiting_count && waiting[at].key < key)
        at++;
    return at < waiting_count && waiting[at].key == key;
}

int tracked_pinned(int64_t key)
{
    if (!is_at(key))
        return 0;
    waiting[pinned++] = waiting[at++];
    return 1;
}

int tracked_promoted(int64_t key, int64_t which, int64_t type, int64_t its_class,
                     int64_t size, int64_t live_size, int64_t address)
{
    const struct waiting *sample;
    struct tracked *object;

    if (!is_at(key) ||
        (tracked_count == tracked_room &&
         !grow(&tracked, &tracked_room, sizeof *tracked, MOST_TRACKED))) {
        missing++;
        return 0;
    }
    sample = &waiting[at];
    object = &tracked[tracked_count++];
    object->key = key;
    object->which = (int32_t)which;
    object->stack = sample->stack;
    object->interval = sample->interval;
    object->size = size != 0 ? size : sample->size;
    object->live_size = live_size != 0 ? live_size : object->size;
    object->type = (int32_t)type;
    object->its_class = (int32_t)its_class;
    object->address = address;
    object->is_forgotten = 0;
    add_alive(object, 1.0);
    return 1;
}

void tracked_lost(void)
{
    struct tracked *object = &tracked[--tracked_count];

    add_alive(object, -1.0);
    count_not_known(object->size, object->interval);
    missing++;
}

void tracked_young_ended(void)
{
    waiting_count = pinned;
    at = pinned = 0;
}

void tracked_marked(void)
{
    seen = kept = 0;
    has_marked = 1;
}

void tracked_freed(int64_t key, int64_t which)
{
    while (seen < tracked_count && (tracked[seen].key != key ||
                                     tracked[seen].which != which))
        tracked[kept++] = tracked[seen++];
    if (seen < tracked_count)
        add_alive(&tracked[seen++], -1.0);
}

void tracked_end(void)
{
    if (has_marked) {
        while (seen < tracked_count)
            tracked[kept++] = tracked[seen++];
        tracked_count = kept;
        if (kept == 0)
            alive = 0.0;     /* remove rounding errors */
        has_marked = 0;
    }
    if (most_alive < alive)
        most_alive = alive;
}

void tracked_inherit(void)
{
    size_t i;

    for (i = 0; i < tracked_count; i++) {
        const struct tracked *object = &tracked[i];
        struct inherited inherited = {
            object->key, object->stack, object->size, object->live_size,
            object->interval, type_names_number(object->type, object->its_class),
            object->which
        };
        recorder_inherited(&inherited);
    }
}

/* ____________________________________________________________ */
/* queries while the program runs */

int64_t *tracked_copy(void)
{
    int64_t *copy = malloc((1 + COPIED * tracked_count) * sizeof *copy), *p;
    size_t i;

    if (copy == NULL)
        return NULL;
    p = copy + 1;
    for (i = 0; i < tracked_count; i++) {
        const struct tracked *object = &tracked[i];
        if (object->is_forgotten)
            continue;
        *p++ = object->address;
        *p++ = object->key;
        *p++ = profile_log_needs_stack(object->stack);
        *p++ = object->size;
        *p++ = object->live_size;
        *p++ = object->interval;
        *p++ = type_names_number(object->type, object->its_class);
    }
    copy[0] = p - copy - 1;
    return copy;
}

void tracked_forget(void)
{
    size_t i;

    for (i = 0; i < tracked_count; i++)
        tracked[i].is_forgotten = 1;
    alive = most_alive = 0.0;
}

void tracked_traced(double *now, double *peak)
{
    *now = alive;
    *peak = most_alive;
}

void tracked_reset_peak(void)
{
    most_alive = alive;
}

void tracked_not_known(int64_t key, int64_t size)
{
    if (is_at(key))
        count_not_known(size != 0 ? size : waiting[at].size, waiting[at].interval);
}

void tracked_swept(int64_t heap, int64_t heap_at_begin)
{
    recorder_swept(heap, heap_at_begin, alive, not_known);
}

int64_t tracked_missing(void)
{
    return missing;
}
