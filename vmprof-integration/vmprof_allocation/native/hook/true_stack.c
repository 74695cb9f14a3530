#include "true_stack.h"

#include "codemap.h"
#include "inlined.h"
#include "jit_stub.h"
#include "python_call.h"

/* Kinds of a pair */
#define INTERPRETED     1
#define INLINED         3
#define PIECE           6

/* The stack that is being made */
static int64_t *stack;
static size_t size;

static void add(int64_t kind, int64_t value)
{
    if (size + 2 > TRUE_STACK_MOST)
        return;
    stack[size++] = kind;
    stack[size++] = value;
}

/* Add the functions at this place of a piece.  'inner' is the outermost function of the
   piece that it has called: 0, if the table doesn't tell it; -1: it has called none.
   Returns its own outermost one. */
static int64_t add_piece(const struct codemap_piece *piece, uintptr_t address,
                         int64_t inner)
{
    struct python_call call = python_call_at(address, piece);
    const struct codemap_entry *entries = piece->entries;
    int which[CODEMAP_DEEPEST];
    int64_t offset = (int64_t)(address - piece->start);
    int count = inlined_at(piece, offset, which);
    int64_t outermost = count > 0 ? entries[which[0]].function : 0;

    if (call.function != 0) {
        int is_lost = call.is_helped || inner == 0;
        if (is_lost)
            add(INTERPRETED, call.function);
        if ((is_lost || inner == call.function) &&
            python_call_is_inside(&call, piece, which, count))
            count--;
    }
    add(PIECE, (int64_t)piece->start);
    while (count-- > 0)
        if (entries[which[count]].function != 0)
            add(INLINED, entries[which[count]].function);
    return outermost;
}

size_t true_stack(const struct stack_node *innermost,
                  int64_t words[TRUE_STACK_MOST])
{
    const struct stack_node *node;
    struct codemap_piece piece;
    int64_t inner = -1;

    stack = words;
    size = 0;
    for (node = innermost; node != NULL; node = node->next) {
        uintptr_t address, stub;
        if (node->kind != NODE_JITTED) {
            add(INTERPRETED, node->value);
            inner = -1;
            continue;
        }
        address = *stack_nodes_return_address(node);
        stub = node == innermost ? jit_stub_back(address) : 0;
        if (stub != 0)
            address = stub;
        if (codemap_find(address, &piece))
            inner = add_piece(&piece, address, inner);
        else
            inner = -1;         /* not the address of a call */
    }
    return size;
}
