#pragma once
/* vmprof's own stack, before anybody has walked it.
 *
 * vmprof keeps a linked list per thread: one node for each interpreted frame,
 * one for each piece of the JIT's machine code that is running.  To walk it
 * takes most of the time of a sample, because for each piece of machine code it
 * is looked up in a table which functions are inlined where it stands.
 * But most stacks were seen before, and the list tells which: the same nodes
 * lead to the same frames, until the JIT puts other code in the same place.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

#define NODE_CODE       1       /* value: the code object's number */
#define NODE_JITTED     3       /* value: stack pointer of the piece */

struct stack_node {
    struct stack_node *next;    /* towards the outermost one */
    intptr_t value;
    intptr_t kind;
};

/* A number for this list; 'state' is mixed in.  0 if there is none: the list
   is empty, longer than vmprof's samples can be, or holds other kinds. */
uint64_t stack_nodes_key(const struct stack_node *innermost, uint64_t state);

/* Of a piece of the JIT's code (NODE_JITTED): where on the machine stack the
   return address of its last call is. */
static inline uintptr_t *stack_nodes_return_address(
    const struct stack_node *node)
{
    return (uintptr_t *)node->value - 1;
}

#pragma GCC visibility pop
