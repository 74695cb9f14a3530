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
    /* The key is a polynomial of the nodes, because a multiplication and an addition
       take no longer than loading the next node.  Lists that differ in one node have
       different keys. */
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
    /* The lowest bits select the key's place in a table (stack_tree.c), but depend only on
       the lowest bits of the nodes.  So mix the upper bits into them. */
    return (key ^ key >> 32) * factor;
}
