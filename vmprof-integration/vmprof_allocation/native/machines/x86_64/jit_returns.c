#include "../jit_returns.h"

void jit_returns_begin(const struct stack_node *innermost)
{
    (void)innermost;
}

void jit_returns_end(void)
{
}

int jit_returns_are_there(void)
{
    return 1;
}
