#pragma once
/* vmprof's list of the frames of a thread, and a key that identifies the stack.
 *
 * vmprof keeps a linked list per thread: one node for each interpreted frame, and one for
 * each trace of the JIT that is running.  A stack walk takes most of the time of a sample,
 * because it finds the inlined functions of each trace in a table.  But most stacks were
 * seen before, and the key recognizes them: the same nodes lead to the same frames, until
 * the JIT puts other machine code at the same address.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

#define NODE_CODE       1       /* 'value' is the number of the code object */
#define NODE_JITTED     3       /* 'value' is the stack pointer of the machine code */

/* A node of vmprof's list, as vmprof defines it */
struct stack_node {
    struct stack_node *next;    /* next node towards the outermost frame */
    intptr_t value;
    intptr_t kind;
};

/* Return a key for the list of nodes that begins at 'innermost'.  The key also depends on
   'state'; a change of 'state' makes all earlier keys invalid.  Returns 0 if the list is
   empty, is longer than vmprof's samples can be, or has nodes of another kind. */
uint64_t stack_nodes_key(const struct stack_node *innermost, uint64_t state);

/* Return a pointer to the return address on the machine stack of the last call that a
   trace of the JIT has made.  'node' is of the kind NODE_JITTED. */
static inline uintptr_t *stack_nodes_return_address(
    const struct stack_node *node)
{
    return (uintptr_t *)node->value - 1;
}

#pragma GCC visibility pop
