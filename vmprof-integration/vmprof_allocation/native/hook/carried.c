#define _GNU_SOURCE
#include "carried.h"

#include <string.h>
#include <sys/mman.h>

#include "code_names.h"
#include "nursery.h"
#include "objects_tables.h"
#include "profile_log.h"
#include "recorder.h"
#include "stack_table.h"
#include "types.h"

/* A stack's number in the profile before: it is needed; or, otherwise, its number in
   this one, or 0 */
#define NEEDED          UINT32_MAX

void carried_want_stacks(void)
{
    size_t i;

    for (i = 0; i < objects.waiting_count; i++)
        profile_log_want((uint64_t)objects.waiting[i].stack);
}

static void need(int64_t stack, uint32_t *numbers, int64_t *most)
{
    if (numbers != NULL && stack > 0)
        numbers[stack] = NEEDED;
    if (*most < stack)
        *most = stack;
}

/* Returns the largest number. */
static int64_t need_all(uint32_t *numbers)
{
    int64_t most = 0;
    size_t i;

    for (i = 0; i < objects.waiting_count; i++)
        need(objects.waiting[i].stack, numbers, &most);
    for (i = 0; i < objects.followed_count; i++)
        need(objects.followed[i].stack, numbers, &most);
    return most;
}

static void define(uint32_t *numbers, int64_t most)
{
    static struct stack_kept stack;

    memset(&stack, 0, sizeof stack);
    while (stack_table_next_kept(&stack)) {
        const int64_t *words = stack.word + STACK_MAX_WORDS - stack.count;
        if ((int64_t)stack.number > most || numbers[stack.number] != NEEDED)
            continue;
        code_names_tell_stack(words, stack.count);
        numbers[stack.number] = (uint32_t)profile_log_define(words, stack.count);
    }
    stack_table_drop();
}

/* 0: it got lost */
static int64_t number_now(const uint32_t *numbers, int64_t stack)
{
    return numbers == NULL || numbers[stack] == NEEDED ? 0 : numbers[stack];
}

static void tell_all(const uint32_t *numbers)
{
    size_t i;

    for (i = 0; i < objects.waiting_count; i++) {
        struct waiting *waiting = &objects.waiting[i];
        waiting->stack = number_now(numbers, waiting->stack);
        if (profile_log_fact(recorder_now()))
            facts_carried(FACTS_CARRIED_YOUNG, waiting->key, 0, waiting->stack,
                          waiting->size, waiting->interval, 0);
    }
    for (i = 0; i < objects.followed_count; i++) {
        struct followed *followed = &objects.followed[i];
        followed->stack = number_now(numbers, followed->stack);
        followed->type = (int32_t)types_number(followed->object);
        if (profile_log_fact(recorder_now()))
            facts_carried(FACTS_CARRIED_OLD, followed->key, followed->which,
                          followed->stack, followed->size, followed->interval,
                          followed->type);
    }
}

void carried_tell(void)
{
    size_t size;
    int64_t most;
    void *map;

    if (objects.waiting == NULL)
        return;
    types_begin();
    if (!objects.follow) {
        stack_table_drop();
        return;
    }
    if (!recorder_begin_facts(nursery.collections))
        return;
    most = need_all(NULL);
    size = ((size_t)most + 1) * sizeof(uint32_t);
    map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
               -1, 0);
    if (map == MAP_FAILED) {
        tell_all(NULL);
        stack_table_drop();
    }
    else {
        (void)need_all(map);
        define(map, most);
        tell_all(map);
        munmap(map, size);
    }
    recorder_end_facts();
}
