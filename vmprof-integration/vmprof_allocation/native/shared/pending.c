#define _GNU_SOURCE
#include "pending.h"

#include <string.h>
#include <sys/mman.h>

#include "profile_log.h"
#include "table.h"

static struct pending *all;
static size_t count, room;
static size_t at;               /* index of the sample that was found last */
static size_t written;          /* number of samples at the beginning that have a row of
                                   RECORD_WAITING */
static size_t first;            /* index up to which the samples have a row of
                                   RECORD_OBJECTS */

void pending_clear(void)
{
    table_give_back(all, room, sizeof *all);
    all = NULL;
    count = room = at = written = first = 0;
}

/* Write a row of RECORD_OBJECTS or RECORD_WAITING, which waits since 'now'.  The row has
   the size in the outcome, or the sample's size if the outcome has none. */
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

    /* nearly always the sample that was found last, or the next one */
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
    /* The sample had no room here if another one is the last, and has its row already. */
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
