#pragma once
/* vmprof's own stack, before anybody has walked it.
 *
 * vmprof keeps a linked list per thread: one node for each interpreted frame,
 * one for each piece of the JIT's machine code that is running.  To walk it
 * takes most of the time of a sample, because for each piece of machine code
 * vmprof looks up in a table which functions are inlined where it stands.
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

/* If the innermost node is a piece of the JIT's code that called from a stub
   (jit_stub.h): the place of the return address on the machine stack, and in
   'back' where the program goes on.  Otherwise NULL. */
uintptr_t *stack_nodes_stub(const struct stack_node *innermost,
                            uintptr_t *back);

#pragma GCC visibility pop
