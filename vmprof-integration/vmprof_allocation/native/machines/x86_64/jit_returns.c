#define _GNU_SOURCE
#include "../jit_returns.h"

#include <stddef.h>

int jit_returns_are_in_place(void)
{
    return 1;
}

void jit_returns_begin(const struct stack_node *innermost)
{
    (void)innermost;
}

void jit_returns_end(void)
{
}

const uintptr_t *jit_returns_interrupted(const struct stack_node *innermost,
                                         const ucontext_t *context, uintptr_t *pc)
{
    (void)innermost;
    *pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    return NULL;
}

int jit_returns_are_free(void)
{
    return 1;
}
