#define _GNU_SOURCE
#include "carried_stacks.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "code_names.h"
#include "invariant.h"
#include "profile_log.h"
#include "recorder.h"
#include "stack_table.h"

/* By a stack's number in the profile before: it is needed; or, otherwise, its number
   in this one, or 0 */
#define NEEDED          UINT32_MAX

static uint32_t *numbers;
static int64_t most;

static size_t size_of_numbers(void)
{
    return ((size_t)most + 1) * sizeof *numbers;
}

void carried_stacks_begin(int64_t largest)
{
    void *map;

    most = largest;
    map = mmap(NULL, size_of_numbers(), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    numbers = map == MAP_FAILED ? NULL : map;
}

void carried_stacks_need(int64_t stack)
{
    INVARIANT(stack <= most);
    if (numbers != NULL && stack > 0)
        numbers[stack] = NEEDED;
}

void carried_stacks_define(void)
{
    static struct stack_kept stack;

    memset(&stack, 0, sizeof stack);
    while (numbers != NULL && stack_table_next_kept(&stack)) {
        const int64_t *words = stack.word + STACK_MAX_WORDS - stack.count;
        if ((int64_t)stack.number > most || numbers[stack.number] != NEEDED)
            continue;
        code_names_tell_stack(words, stack.count);
        numbers[stack.number] = (uint32_t)profile_log_define(words, stack.count);
    }
    stack_table_drop();
}

int64_t carried_stacks_number(int64_t stack)
{
    INVARIANT(stack <= most);
    return numbers == NULL || numbers[stack] == NEEDED ? 0 : numbers[stack];
}

void carried_stacks_tell(enum facts_carried kind, int64_t key, int which,
                         int64_t stack, int64_t size, int64_t live_size,
                         int64_t interval, int64_t type)
{
    if (profile_log_fact(recorder_now()))
        facts_carried(kind, key, which, stack, size, live_size, interval, type);
}

void carried_stacks_end(void)
{
    if (numbers != NULL)
        munmap(numbers, size_of_numbers());
    numbers = NULL;
}
