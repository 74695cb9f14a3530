#define _GNU_SOURCE
#include "followed.h"

#include "carried_stacks.h"
#include "recorder.h"
#include "table.h"
#include "type_names.h"

/* as many as the GC has */
#define MOST_WAITING    ((size_t)1 << 18)
#define MOST_FOLLOWED   ((size_t)1 << 20)

struct waiting {
    int64_t key, stack, size, interval;
};

struct followed {
    int64_t key, stack, size, interval;
    int32_t type, its_class;    /* the GC's and the interpreter's numbers */
    int64_t which;
};

static struct waiting *waiting;
static struct followed *followed;
static size_t waiting_count, waiting_room, followed_count, followed_room;
static size_t at;               /* where the GC is among those that wait, */
static size_t seen, kept;       /* and, after a marking, among the others */
static int has_marked;
static int64_t most_memory;

void followed_clear(void)
{
    table_give_back(waiting, waiting_room, sizeof *waiting);
    table_give_back(followed, followed_room, sizeof *followed);
    waiting = NULL;
    followed = NULL;
    waiting_count = waiting_room = followed_count = followed_room = 0;
    at = 0;
    has_marked = 0;
    most_memory = 0;
}

int64_t followed_memory(void)
{
    return most_memory;
}

static void count_memory(void)
{
    int64_t now = (int64_t)(waiting_room * sizeof *waiting +
                            followed_room * sizeof *followed);

    if (most_memory < now)
        most_memory = now;
}

void followed_sampled(int64_t key, int64_t stack, int64_t size, int64_t interval)
{
    struct waiting sample = { key, stack, size, interval };

    if (!table_has_room((void **)&waiting, &waiting_room, waiting_count,
                        sizeof *waiting, MOST_WAITING))
        return;
    waiting[waiting_count++] = sample;
    count_memory();
}

int followed_promoted(int64_t key, int64_t which, int64_t type, int64_t its_class,
                      int64_t size)
{
    const struct waiting *sample;
    struct followed *object;

    while (at < waiting_count && waiting[at].key < key)
        at++;
    if (at == waiting_count || waiting[at].key != key ||
        !table_has_room((void **)&followed, &followed_room, followed_count,
                        sizeof *followed, MOST_FOLLOWED))
        return 0;
    sample = &waiting[at];
    object = &followed[followed_count++];
    object->key = key;
    object->which = which;
    object->stack = sample->stack;
    object->interval = sample->interval;
    object->size = size != 0 ? size : sample->size;
    object->type = (int32_t)type;
    object->its_class = (int32_t)its_class;
    if (sample->stack > 0)
        profile_log_want((uint64_t)sample->stack);
    count_memory();
    return 1;
}

void followed_lost(void)
{
    followed_count--;
}

void followed_young_ended(void)
{
    waiting_count = at = 0;
}

void followed_marked(void)
{
    seen = kept = 0;
    has_marked = 1;
}

void followed_freed(int64_t key, int64_t which)
{
    while (seen < followed_count && (followed[seen].key != key ||
                                     followed[seen].which != which))
        followed[kept++] = followed[seen++];
    seen++;
}

void followed_end(void)
{
    if (!has_marked)
        return;
    while (seen < followed_count)
        followed[kept++] = followed[seen++];
    followed_count = kept;
    has_marked = 0;
}

static int64_t largest_stack(void)
{
    int64_t most = 0;
    size_t i;

    for (i = 0; i < followed_count; i++)
        if (most < followed[i].stack)
            most = followed[i].stack;
    return most;
}

void followed_carry(void)
{
    size_t i;

    carried_stacks_begin(largest_stack());
    for (i = 0; i < followed_count; i++)
        carried_stacks_need(followed[i].stack);
    carried_stacks_define();
    for (i = 0; i < followed_count; i++) {
        struct followed *object = &followed[i];
        object->stack = carried_stacks_number(object->stack);
        recorder_carried(FACTS_CARRIED_OLD, object->key, (int)object->which,
                         object->stack, object->size, object->interval,
                         type_names_number(object->type, object->its_class));
    }
    carried_stacks_end();
}
