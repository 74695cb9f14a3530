#include "stack_table.h"

#include <string.h>

#include "digits.h"

#define SLOTS           8192            /* a power of two */
#define MAX_STACKS      (SLOTS / 4 * 3)
#define KEYS            4096            /* a power of two */
#define NODE_SLOTS      65536           /* a power of two */
#define MAX_NODES       (NODE_SLOTS / 2)
#define FRAME_SLOTS     32768           /* a power of two */
#define MAX_FRAMES      (FRAME_SLOTS / 2)
#define MAX_DEFINITION  ((STACK_MAX_WORDS + 2) * DIGITS_MAX + STACK_MAX_WORDS / 2)

struct entry {
    uint64_t hash;
    uint64_t counted;
};

struct frame {
    int64_t kind, address;
};

/* Number 0 is the root: a stack without frames.  The others are numbers of
   nodes, 0: there is none. */
struct node {
    uint16_t frame;
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
static struct frame frames[MAX_FRAMES]; /* from number 1 on */
static uint32_t frame_count = 1;
static uint16_t frame_slots[FRAME_SLOTS];   /* 0: free */
static struct {
    uint64_t key;
    uint16_t entry;                     /* number of the entry + 1 */
    uint16_t uses;
} known[KEYS];
static char text[MAX_DEFINITION];
static uint64_t numbers_before;         /* of entries that were forgotten */
static uint64_t nodes_before, frames_before;    /* likewise */

void stack_table_forget_keys(void)
{
    memset(known, 0, sizeof known);
}

void stack_table_clear(void)
{
    if (entry_count > 0) {
        memset(slots, 0, sizeof slots);
        memset(node_slots, 0, sizeof node_slots);
        memset(frame_slots, 0, sizeof frame_slots);
        stack_table_forget_keys();
    }
    numbers_before += entry_count;
    nodes_before += node_count - 1;
    frames_before += frame_count - 1;
    entry_count = 0;
    node_count = frame_count = 1;
    memset(nodes, 0, sizeof *nodes);
}

void stack_table_reset(void)
{
    stack_table_clear();
    numbers_before = nodes_before = frames_before = 0;
}

int stack_table_is_full(void)
{
    return entry_count == MAX_STACKS ||
           node_count + STACK_MAX_WORDS / 2 > MAX_NODES ||
           frame_count + STACK_MAX_WORDS / 2 > MAX_FRAMES;
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

static uint64_t mix(uint64_t hash)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;

    hash *= factor;
    return (hash ^ hash >> 32) * factor >> 32;
}

/* The slot of this frame, or where it belongs */
static uint16_t *slot_of_frame(int64_t kind, int64_t address)
{
    uint64_t slot = mix((uint64_t)address ^ (uint64_t)kind << 60) % FRAME_SLOTS;

    for (; frame_slots[slot] != 0; slot = (slot + 1) % FRAME_SLOTS) {
        const struct frame *frame = &frames[frame_slots[slot]];
        if (frame->address == address && frame->kind == kind)
            break;
    }
    return &frame_slots[slot];
}

/* The slot of this child of 'parent', or where it belongs */
static uint16_t *slot_of_node(uint32_t parent, uint32_t frame)
{
    uint64_t slot = mix((uint64_t)parent << 16 | frame) % NODE_SLOTS;

    for (; node_slots[slot] != 0; slot = (slot + 1) % NODE_SLOTS) {
        const struct node *node = &nodes[node_slots[slot]];
        if (node->parent == parent && node->frame == frame)
            break;
    }
    return &node_slots[slot];
}

static uint32_t add_node(uint32_t parent, uint32_t frame)
{
    struct node *node = &nodes[node_count];

    node->frame = (uint16_t)frame;
    node->parent = (uint16_t)parent;
    node->child = node->entry = 0;
    node->sibling = nodes[parent].child;
    nodes[parent].child = (uint16_t)node_count;
    *slot_of_node(parent, frame) = (uint16_t)node_count;
    return node_count++;
}

/* The number of this frame; what says so is put at '*p'. */
static uint32_t put_frame(char **p, int64_t kind, int64_t address)
{
    uint16_t *slot = slot_of_frame(kind, address);

    if (*slot != 0) {
        *p = put_digits(*p, frames_before + *slot);
        return *slot;
    }
    *slot = (uint16_t)frame_count;
    frames[frame_count].kind = kind;
    frames[frame_count].address = address;
    *p = put_digits(*p, 0);
    *p = put_digits(*p, (uint64_t)kind);
    *p = put_digits(*p, (uint64_t)address);
    return frame_count++;
}

/* The text of a new stack, from 'text' to '*end'.  Returns the node that it
   ends with. */
static uint32_t define(const stack_word *words, size_t count, char **end)
{
    uint32_t node = 0, next;
    char *p = text;
    size_t i;

    for (i = count; i > 0; i -= 2, node = next) {
        next = *slot_of_frame(words[i - 2], words[i - 1]);
        if (next != 0)
            next = *slot_of_node(node, next);
        if (next == 0)
            break;
    }
    p = put_digits(p, node == 0 ? 0 : nodes_before + node);
    p = put_digits(p, i / 2);
    for (; i > 0; i -= 2)
        node = add_node(node, put_frame(&p, words[i - 2], words[i - 1]));
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
    walk->word[STACK_MAX_WORDS - walk->count] = frames[nodes[node].frame].kind;
    walk->word[STACK_MAX_WORDS - walk->count + 1] =
        frames[nodes[node].frame].address;
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
