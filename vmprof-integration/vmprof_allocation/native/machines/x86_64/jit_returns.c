#define _GNU_SOURCE
#include "../jit_returns.h"

#include <stddef.h>

void jit_returns_begin(enum jit_returns_of whom, const struct stack_node *innermost)
{
    (void)whom;
    (void)innermost;
}

void jit_returns_end(enum jit_returns_of whom)
{
    (void)whom;
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
