#include "carried.h"

#include "carried_stacks.h"
#include "nursery.h"
#include "objects_tables.h"
#include "profile_log.h"
#include "recorder.h"
#include "stack_table.h"
#include "types.h"

void carried_want_stacks(void)
{
    size_t i;

    for (i = 0; i < objects.waiting_count; i++)
        profile_log_want((uint64_t)objects.waiting[i].stack);
    for (i = 0; i < objects.pinned_count; i++)
        profile_log_want((uint64_t)objects.young[i].stack);
}

static int64_t largest_stack(void)
{
    int64_t most = 0;
    size_t i;

    for (i = 0; i < objects.waiting_count; i++)
        if (most < objects.waiting[i].stack)
            most = objects.waiting[i].stack;
    for (i = 0; i < objects.pinned_count; i++)
        if (most < objects.young[i].stack)
            most = objects.young[i].stack;
    for (i = 0; i < objects.followed_count; i++)
        if (most < objects.followed[i].stack)
            most = objects.followed[i].stack;
    return most;
}

static void need_all(void)
{
    size_t i;

    for (i = 0; i < objects.waiting_count; i++)
        carried_stacks_need(objects.waiting[i].stack);
    for (i = 0; i < objects.pinned_count; i++)
        carried_stacks_need(objects.young[i].stack);
    for (i = 0; i < objects.followed_count; i++)
        carried_stacks_need(objects.followed[i].stack);
}

static void tell_all(void)
{
    size_t i;

    for (i = 0; i < objects.waiting_count; i++) {
        struct waiting *waiting = &objects.waiting[i];
        waiting->stack = carried_stacks_number(waiting->stack);
        carried_stacks_tell(FACTS_CARRIED_YOUNG, waiting->key, 0, waiting->stack,
                            waiting->size, waiting->size, waiting->interval, 0);
    }
    for (i = 0; i < objects.pinned_count; i++) {
        struct young *young = &objects.young[i];
        young->stack = carried_stacks_number(young->stack);
        carried_stacks_tell(FACTS_CARRIED_YOUNG, young->key, 0, young->stack,
                            young->size, young->size, young->interval, 0);
    }
    for (i = 0; i < objects.followed_count; i++) {
        struct followed *followed = &objects.followed[i];
        followed->stack = carried_stacks_number(followed->stack);
        followed->type = (int32_t)types_number(followed->object);
        carried_stacks_tell(FACTS_CARRIED_OLD, followed->key, followed->which,
                            followed->stack, followed->size, followed->live_size,
                            followed->interval, followed->type);
    }
}

void carried_tell(void)
{
    if (objects.waiting == NULL)
        return;
    types_begin();
    if (!objects.follow) {
        stack_table_drop();
        return;
    }
    if (!recorder_begin_facts(nursery.collections))
        return;
    carried_stacks_begin(largest_stack());
    need_all();
    carried_stacks_define();
    tell_all();
    carried_stacks_end();
    recorder_end_facts();
}
