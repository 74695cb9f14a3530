#define _GNU_SOURCE
#include "pending.h"

#include <string.h>
#include <sys/mman.h>

#include "profile_log.h"
#include "table.h"

static struct pending *all;
static size_t count, room;
/* 'all' has 'count' samples, in the order of their keys, and room for 'room' */
static size_t at;               /* index in 'all' of the sample that find() returned last */
static size_t written;          /* index of the first sample that pending_put_waiting() has
                                   not seen */
static size_t first;            /* all samples before this index have a row of
                                   RECORD_OBJECTS */

void pending_clear(void)
{
    table_give_back(all, room, sizeof *all);
    all = NULL;
    count = room = at = written = first = 0;
}

/* Append a row of RECORD_OBJECTS or RECORD_WAITING, which waits to be written since 'now'.
   'which' is the number of the object among the objects of its sample.  The size is that in
   the outcome, or the sample's size if the outcome has none. */
static void put(enum record_kind kind, const struct pending *p, int64_t now, int which,
                const struct outcome_of *o)
{
    int64_t row[RECORD_MOST_COLUMNS] = {
        p->key, which, p->time, p->thread, p->stack, p->label, p->memory,
        o->size != 0 ? o->size : p->size, p->interval, o->type, o->outcome,
        o->collection, o->live_size
    };

    profile_log_row(kind, now, row);
}

void pending_alone(const struct pending *sample, int64_t now, enum outcome outcome)
{
    struct outcome_of o = { .outcome = outcome };

    put(RECORD_OBJECTS, sample, now, 0, &o);
}

void pending_add(const struct pending *sample, int64_t now)
{
    if (!table_has_room((void **)&all, &room, count, sizeof *all, PENDING_MOST)) {
        pending_alone(sample, now, OUTCOME_NOT_KNOWN);
        return;
    }
    all[count] = *sample;
    all[count].told = all[count].is_done = all[count].is_young = 0;
    count++;
    profile_log_waits(now);
}

/* Return the sample with this key, or NULL. */
static struct pending *find(int64_t key)
{
    size_t low = 0, high = count;

    /* nearly always, 'key' belongs to the sample that was found last, or to the next one */
    if (at < count && all[at].key < key)
        at++;
    if (at < count && all[at].key == key)
        return &all[at];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count || all[low].key != key)
        return NULL;
    at = low;
    return &all[low];
}

void pending_told(const struct outcome_of *o)
{
    struct pending *p = find(o->key);

    if (p == NULL)
        return;
    put(RECORD_OBJECTS, p, o->now, p->told++, o);
    if (outcome_is_young(o->outcome))
        p->is_young = 1;
    else
        p->is_done = 1;
}

void pending_give_up(int64_t key, int64_t now)
{
    /* If the last sample has another key, pending_add() had no memory for this sample, and
       has written its row. */
    if (count == 0 || all[count - 1].key != key)
        return;
    count--;
    pending_alone(&all[count], now, OUTCOME_NOT_KNOWN);
    if (written > count)
        written = count;
    if (first > count)
        first = count;
}

void pending_sweep(void)
{
    size_t i, left = 0, left_written = 0;

    for (i = 0; i < count; i++)
        if (!all[i].is_done) {
            all[i].told = 0;
            if (left != i)
                all[left] = all[i];
            left++;
            left_written += i < written;
        }
    count = left;
    written = left_written;
    at = first = 0;
}

static int has_no_row(const struct pending *p)
{
    return !p->is_done && !p->is_young;
}

int64_t pending_first_key(void)
{
    while (first < count && !has_no_row(&all[first]))
        first++;
    return first < count ? all[first].key : 0;
}

void pending_put_waiting(void)
{
    struct outcome_of o = { .outcome = OUTCOME_YOUNG };

    for (; written < count; written++)
        if (has_no_row(&all[written]))
            put(RECORD_WAITING, &all[written], all[written].time, 0, &o);
}

void pending_put_young(int64_t now)
{
    size_t i;

    for (i = 0; i < count; i++)
        if (has_no_row(&all[i])) {
            pending_alone(&all[i], now, OUTCOME_YOUNG);
            all[i].is_young = 1;
        }
}

void pending_take_along(int64_t now, int64_t later)
{
    size_t i;

    for (i = 0; i < count; i++) {
        all[i].is_young = 0;
        all[i].time -= later - later % 1000;
        all[i].stack = profile_log_needs_stack(all[i].node);
        all[i].label = profile_log_needs_label(all[i].label, now);
    }
    written = first = 0;
}

size_t pending_memory(void)
{
    return room * sizeof *all;
}
