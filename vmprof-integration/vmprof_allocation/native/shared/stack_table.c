#include "stack_table.h"

#include <string.h>

#include "digits.h"

#define SLOTS           8192            /* a power of two */
#define MAX_STACKS      (SLOTS / 4 * 3)
#define KEYS            4096            /* a power of two */
#define NODE_SLOTS      65536           /* a power of two */
#define MAX_NODES       (NODE_SLOTS / 2)
#define MAX_DEFINITION  ((STACK_MAX_WORDS + 2) * DIGITS_MAX)

struct entry {
    uint64_t hash;
    uint64_t counted;
};

/* Number 0 is the root: a stack without frames.  The others are numbers of
   nodes, 0: there is none. */
struct node {
    int64_t kind, address;
    uint16_t parent;
    uint16_t child;                     /* the newest one */
    uint16_t sibling;                   /* the next older one */
    uint16_t entry;                     /* number of the entry + 1; 0: none */
};

static struct entry entries[MAX_STACKS];
static uint32_t entry_count;
static uint16_t slots[SLOTS];           /* number of the entry + 1; 0: free */
static struct node nodes[MAX_NODES];
static uint32_t node_count = 1;
static uint16_t node_slots[NODE_SLOTS]; /* 0: free */
static struct {
    uint64_t key;
    uint16_t entry;                     /* number of the entry + 1 */
    uint16_t uses;
} known[KEYS];
static char text[MAX_DEFINITION];
static uint64_t numbers_before;         /* of entries that were forgotten */
static uint64_t nodes_before;           /* likewise */

void stack_table_forget_keys(void)
{
    memset(known, 0, sizeof known);
}

void stack_table_clear(void)
{
    if (entry_count > 0) {
        memset(slots, 0, sizeof slots);
        memset(node_slots, 0, sizeof node_slots);
        stack_table_forget_keys();
    }
    numbers_before += entry_count;
    nodes_before += node_count - 1;
    entry_count = 0;
    node_count = 1;
    memset(nodes, 0, sizeof *nodes);
}

void stack_table_reset(void)
{
    stack_table_clear();
    numbers_before = nodes_before = 0;
}

int stack_table_is_full(void)
{
    return entry_count == MAX_STACKS ||
           node_count + STACK_MAX_WORDS / 2 > MAX_NODES;
}

/* Four sums at a time: one multiplication doesn't wait for the other. */
static uint64_t hash_of(const stack_word *words, size_t count)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t h[4] = { count, 1, 2, 3 };
    size_t i, k;

    for (i = 0; i + 4 <= count; i += 4)
        for (k = 0; k < 4; k++) {
            h[k] = (h[k] ^ (uint64_t)words[i + k]) * factor;
            h[k] ^= h[k] >> 32;
        }
    for (k = 0; i < count; i++, k++)
        h[k] = (h[k] ^ (uint64_t)words[i]) * factor;
    for (k = 1; k < 4; k++) {
        h[0] = (h[0] ^ (h[0] >> 29)) * factor;
        h[0] ^= h[k] ^ (h[k] >> 31);
    }
    h[0] = (h[0] ^ (h[0] >> 29)) * factor;
    return h[0] ^ (h[0] >> 32);
}

/* The slot of this child of 'parent', or where it belongs. */
static uint16_t *slot_of(uint32_t parent, int64_t kind, int64_t address)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t hash = ((uint64_t)address ^ (uint64_t)parent << 48) * factor;
    uint32_t slot;

    hash = (hash ^ hash >> 32 ^ (uint64_t)kind) * factor;
    slot = (uint32_t)(hash >> 32) % NODE_SLOTS;
    for (; node_slots[slot] != 0; slot = (slot + 1) % NODE_SLOTS) {
        const struct node *node = &nodes[node_slots[slot]];
        if (node->parent == parent && node->address == address &&
            node->kind == kind)
            break;
    }
    return &node_slots[slot];
}

static uint32_t add_node(uint32_t parent, int64_t kind, int64_t address)
{
    struct node *node = &nodes[node_count];

    node->kind = kind;
    node->address = address;
    node->parent = (uint16_t)parent;
    node->child = node->entry = 0;
    node->sibling = nodes[parent].child;
    nodes[parent].child = (uint16_t)node_count;
    return node_count++;
}

/* The text of a new stack, which ends with the node that is returned.
   Returns the end of the text in 'end'. */
static uint32_t define(const stack_word *words, size_t count, char **end)
{
    uint32_t node = 0;
    uint16_t *slot = NULL;
    char *p = text;
    size_t i;

    for (i = count; i > 0; i -= 2) {
        slot = slot_of(node, words[i - 2], words[i - 1]);
        if (*slot == 0)
            break;
        node = *slot;
    }
    p = put_digits(p, node == 0 ? 0 : nodes_before + node);
    p = put_digits(p, i / 2);
    for (; i > 0; i -= 2) {
        slot = slot_of(node, words[i - 2], words[i - 1]);
        node = add_node(node, words[i - 2], words[i - 1]);
        *slot = (uint16_t)node;
        p = put_digits(p, (uint64_t)words[i - 2]);
        p = put_digits(p, (uint64_t)words[i - 1]);
    }
    *end = p;
    return node;
}

uint64_t stack_table_count(const stack_word *words, size_t count,
                           const char **definition, size_t *size)
{
    uint64_t hash = hash_of(words, count);
    uint32_t slot = (uint32_t)hash % SLOTS;
    struct entry *entry;
    char *end;

    *definition = NULL;
    *size = 0;
    for (; slots[slot] != 0; slot = (slot + 1) % SLOTS) {
        entry = &entries[slots[slot] - 1];
        if (entry->hash == hash) {
            entry->counted++;
            return numbers_before + slots[slot];
        }
    }
    entry = &entries[entry_count];
    slots[slot] = (uint16_t)++entry_count;
    entry->hash = hash;
    entry->counted = 1;
    nodes[define(words, count, &end)].entry = (uint16_t)entry_count;
    *definition = text;
    *size = (size_t)(end - text);
    return numbers_before + entry_count;
}

void stack_table_remember(uint64_t key, uint64_t number)
{
    size_t i = (size_t)(key % KEYS);

    known[i].key = key;
    known[i].entry = (uint16_t)(number - numbers_before);
    known[i].uses = 0;
}

uint64_t stack_table_count_known(uint64_t key)
{
    size_t i = (size_t)(key % KEYS);

    if (known[i].key != key || known[i].uses == STACK_KEY_USES)
        return 0;
    known[i].uses++;
    entries[known[i].entry - 1].counted++;
    return numbers_before + known[i].entry;
}

static void enter(struct stack_walk *walk, uint16_t node)
{
    walk->count += 2;
    walk->word[STACK_MAX_WORDS - walk->count] = nodes[node].kind;
    walk->word[STACK_MAX_WORDS - walk->count + 1] = nodes[node].address;
    walk->node = node;
}

/* On to the next node; 0 if there are no more */
static int advance(struct stack_walk *walk, size_t *shared)
{
    uint16_t next = nodes[walk->node].child;

    if (!walk->begun)
        return walk->begun = 1;
    while (next == 0) {
        if (walk->node == 0)
            return 0;
        next = nodes[walk->node].sibling;
        walk->node = nodes[walk->node].parent;
        walk->count -= 2;
        if (*shared > walk->count)
            *shared = walk->count;
    }
    enter(walk, next);
    return 1;
}

int stack_table_next(struct stack_walk *walk, uint64_t *counted,
                     size_t *shared)
{
    *shared = walk->count;
    do
        if (!advance(walk, shared))
            return 0;
    while (nodes[walk->node].entry == 0);
    *counted = entries[nodes[walk->node].entry - 1].counted;
    return 1;
}
