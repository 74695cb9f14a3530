#include "stack_nodes.h"

#include <stddef.h>

#define MAX_NODES       512     /* vmprof's samples have at most 509 frames */

uint64_t stack_nodes_key(const struct stack_node *node, uint64_t state)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t key = state + 1;
    int nodes;

    if (node == NULL)
        return 0;
    /* A polynomial of the nodes, because a multiplication and an addition take no longer
       than loading the next node.  Lists that differ in one node have different values. */
    for (nodes = 0; node != NULL; node = node->next, nodes++) {
        uint64_t value = (uint64_t)node->value;
        if (nodes == MAX_NODES)
            return 0;
        if (node->kind == NODE_JITTED)
            value = *stack_nodes_return_address(node);
        else if (node->kind != NODE_CODE)
            return 0;
        key = key * factor + (value << 3 | (uint64_t)node->kind);
    }
    /* the lowest bits depend only on the lowest bits of the values, but choose the place
       in a table */
    return (key ^ key >> 32) * factor;
}
