#define _GNU_SOURCE
#include "stack_tree.h"

#include <string.h>
#include <sys/mman.h>

#include "table.h"

#define KEYS            4096            /* length of 'known', a power of two */
#define MOST_FRAMES     ((size_t)1 << 18)
#define MOST_STACKS     ((size_t)1 << 18)

/* kinds of Python frames (converter/PROFILE.rst) */
enum { INTERPRETED = 1, COMPILED = 3 };

struct frame {
    int64_t kind, address;
    uint32_t told;                      /* number in the profile; 0 if it was not written */
};

struct node {
    uint32_t parent, frame;             /* parent node (0 for the outermost), and frame */
    uint32_t told;                      /* number in the profile; 0 if it was not written */
};

/* A slot of the hash table of whole stacks, in which a stack is found without walking
   through its frames */
struct stack {
    uint64_t hash;
    uint32_t node;                      /* 0 if the slot is free */
};

/* A hash table with open addressing.  A slot has the index plus 1 of a frame or node, or 0
   if it is free.  At least half of the slots are free. */
struct slots {
    uint32_t *slots;
    size_t count;                       /* a power of two; 0 if the table was not made
                                           yet */
};

/* The tree.  Indexes begin at 0.  A node's identity is its index plus 1, plus the number
   of nodes that were forgotten. */
static struct {
    struct frame *frames;
    size_t frames_count, frames_room;
    struct slots frame_slots;
    struct node *nodes;
    size_t nodes_count, nodes_room;
    struct slots node_slots;
    struct stack *stacks;               /* hash table of whole stacks with open
                                           addressing, because most stacks were seen
                                           before */
    size_t stacks_count, stacks_room;
    int64_t nodes_before;               /* number of nodes that were forgotten */
    uint32_t frames_told, nodes_told;   /* how many were written to the profile */
    void (*tell_frame)(int64_t kind, int64_t address);
    void (*tell_node)(int64_t parent, int64_t frame);
} tree;

static struct {
    uint64_t key;
    int64_t node;
    int uses;
} known[KEYS];

static unsigned forgotten;

void stack_tree_forget_keys(void)
{
    memset(known, 0, sizeof known);
    forgotten++;
}

unsigned stack_tree_keys(void)
{
    return forgotten;
}

static void give_back(struct slots *s)
{
    table_give_back(s->slots, s->count, sizeof *s->slots);
    memset(s, 0, sizeof *s);
}

void stack_tree_end(void)
{
    table_give_back(tree.frames, tree.frames_room, sizeof *tree.frames);
    table_give_back(tree.nodes, tree.nodes_room, sizeof *tree.nodes);
    table_give_back(tree.stacks, tree.stacks_room, sizeof *tree.stacks);
    give_back(&tree.frame_slots);
    give_back(&tree.node_slots);
    memset(&tree, 0, sizeof tree);
    stack_tree_forget_keys();
}

void stack_tree_begin(void (*tell_frame)(int64_t, int64_t),
                      void (*tell_node)(int64_t, int64_t))
{
    stack_tree_end();
    tree.tell_frame = tell_frame;
    tree.tell_node = tell_node;
}

void stack_tree_begin_part(void)
{
    size_t i;

    for (i = 0; i < tree.frames_count; i++)
        tree.frames[i].told = 0;
    for (i = 0; i < tree.nodes_count; i++)
        tree.nodes[i].told = 0;
    tree.frames_told = tree.nodes_told = 0;
    stack_tree_forget_keys();
}

static void forget_stacks(void)
{
    tree.stacks_count = 0;
    if (tree.stacks_room > 0)
        memset(tree.stacks, 0, tree.stacks_room * sizeof *tree.stacks);
}

/* Empty the tree, because it is full. */
static void forget_all(void)
{
    tree.nodes_before += (int64_t)tree.nodes_count;
    tree.frames_count = tree.nodes_count = 0;
    memset(tree.frame_slots.slots, 0,
           tree.frame_slots.count * sizeof *tree.frame_slots.slots);
    memset(tree.node_slots.slots, 0,
           tree.node_slots.count * sizeof *tree.node_slots.slots);
    forget_stacks();
    stack_tree_forget_keys();
}

/* ____________________________________________________________ */
/* search */

/* Return 32 bits, each of which depends on all bits of 'hash'. */
static uint64_t mix(uint64_t hash)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;

    hash *= factor;
    return (hash ^ hash >> 32) * factor >> 32;
}

static uint64_t hash_of_frame(int64_t kind, int64_t address)
{
    return mix((uint64_t)address ^ (uint64_t)kind << 60);
}

static uint64_t hash_of_node(uint32_t parent, uint32_t frame)
{
    return mix((uint64_t)parent << 32 | frame);
}

/* Return the hash of a stack.  It consists of two polynomials of the frames, so that the
   processor computes two multiplications at once. */
static uint64_t hash_of_stack(const stack_word *words, size_t count)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t even = count, odd = 1;
    size_t i;

    for (i = 0; i + 4 <= count; i += 4) {
        even = even * factor + ((uint64_t)words[i + 1] << 4 ^ (uint64_t)words[i]);
        odd = odd * factor + ((uint64_t)words[i + 3] << 4 ^ (uint64_t)words[i + 2]);
    }
    if (i < count)
        even = even * factor + ((uint64_t)words[i + 1] << 4 ^ (uint64_t)words[i]);
    even = (even ^ even >> 29) * factor;
    odd = (odd ^ odd >> 31) * factor;
    even = (even ^ (odd ^ odd >> 29)) * factor;
    return even ^ even >> 32;
}

/* Return at least 'least' free slots of 'size' bytes, and store their number, a power of
   two, in '*count'.  Returns NULL if there is no memory. */
static void *new_slots(size_t least, size_t size, size_t *count)
{
    void *slots = NULL;

    for (*count = 0; *count < least; )
        if (!table_has_room(&slots, count, *count, size, SIZE_MAX / 2)) {
            table_give_back(slots, *count, size);
            return NULL;
        }
    return slots;
}

static void put_in(struct slots *s, uint64_t hash, size_t index)
{
    size_t i = hash & (s->count - 1);

    while (s->slots[i] != 0)
        i = (i + 1) & (s->count - 1);
    s->slots[i] = (uint32_t)index + 1;
}

/* Make room in a hash table, which has 'count' frames or nodes, for one more.  'hash'
   returns the hash of the frame or node with an index.  Returns 0 if there is no memory. */
static int have_slots(struct slots *s, size_t count, uint64_t (*hash)(size_t index))
{
    struct slots grown;
    size_t i;

    if (2 * (count + 1) <= s->count)
        return 1;
    grown.slots = new_slots(2 * count + 2 > 4 * count ? 2 * count + 2 : 4 * count,
                            sizeof *grown.slots, &grown.count);
    if (grown.slots == NULL)
        return 0;
    for (i = 0; i < count; i++)
        put_in(&grown, hash(i), i);
    give_back(s);
    *s = grown;
    return 1;
}

static uint64_t hash_of_frame_at(size_t i)
{
    return hash_of_frame(tree.frames[i].kind, tree.frames[i].address);
}

static uint64_t hash_of_node_at(size_t i)
{
    return hash_of_node(tree.nodes[i].parent, tree.nodes[i].frame);
}

/* Return the index of a frame plus 1, or 0 if it is new. */
static uint32_t find_frame(uint64_t hash, int64_t kind, int64_t address)
{
    const struct slots *s = &tree.frame_slots;
    size_t i = hash & (s->count - 1);

    for (; s->count > 0 && s->slots[i] != 0; i = (i + 1) & (s->count - 1)) {
        const struct frame *frame = &tree.frames[s->slots[i] - 1];
        if (frame->address == address && frame->kind == kind)
            return s->slots[i];
    }
    return 0;
}

/* Return the index of a frame plus 1, and add the frame if it is new.  Returns 0 if
   there is no memory. */
static uint32_t frame_index(int64_t kind, int64_t address)
{
    uint64_t hash = hash_of_frame(kind, address);
    struct slots *s = &tree.frame_slots;
    uint32_t found = find_frame(hash, kind, address);
    struct frame *frame;

    if (found != 0)
        return found;
    if (!have_slots(s, tree.frames_count, hash_of_frame_at) ||
        !table_has_room((void **)&tree.frames, &tree.frames_room, tree.frames_count,
                        sizeof *tree.frames, MOST_FRAMES))
        return 0;
    frame = &tree.frames[tree.frames_count];
    frame->kind = kind;
    frame->address = address;
    frame->told = 0;
    put_in(s, hash, tree.frames_count);
    return (uint32_t)++tree.frames_count;
}

/* Return the index plus 1 of the child of 'parent' with this frame, and add the child if
   it is new.  Returns 0 if there is no memory. */
static uint32_t node_index(uint32_t parent, uint32_t frame)
{
    uint64_t hash = hash_of_node(parent, frame);
    struct slots *s = &tree.node_slots;
    size_t i = hash & (s->count - 1);
    struct node *node;

    for (; s->count > 0 && s->slots[i] != 0; i = (i + 1) & (s->count - 1)) {
        node = &tree.nodes[s->slots[i] - 1];
        if (node->parent == parent && node->frame == frame)
            return s->slots[i];
    }
    if (!have_slots(s, tree.nodes_count, hash_of_node_at) ||
        !table_has_room((void **)&tree.nodes, &tree.nodes_room, tree.nodes_count,
                        sizeof *tree.nodes, STACK_TREE_NODES))
        return 0;
    node = &tree.nodes[tree.nodes_count];
    node->parent = parent;
    node->frame = frame;
    node->told = 0;
    put_in(s, hash, tree.nodes_count);
    return (uint32_t)++tree.nodes_count;
}

/* Return the index plus 1 of the node of a stack, or 0 if there is no memory. */
static uint32_t walk(const stack_word *words, size_t count)
{
    uint32_t node = 0, frame;
    size_t i;

    for (i = count; i > 0; i -= 2) {
        frame = frame_index(words[i - 2], words[i - 1]);
        node = frame == 0 ? 0 : node_index(node, frame);
        if (node == 0)
            return 0;
    }
    return node;
}

static int is_full(void)
{
    return tree.nodes_count + STACK_MAX_WORDS / 2 > STACK_TREE_NODES ||
           tree.frames_count + STACK_MAX_WORDS / 2 > MOST_FRAMES;
}

/* Return the slot of the stack with this hash, or the free slot for a new stack. */
static struct stack *slot_of(uint64_t hash)
{
    size_t i = hash & (tree.stacks_room - 1);

    while (tree.stacks[i].node != 0 && tree.stacks[i].hash != hash)
        i = (i + 1) & (tree.stacks_room - 1);
    return &tree.stacks[i];
}

/* Make room in tree.stacks for one more stack.  Returns 0 if there is no memory. */
static int have_stack_slots(void)
{
    struct stack *before = tree.stacks, *grown;
    size_t room_before = tree.stacks_room, room, i;

    if (2 * (tree.stacks_count + 1) <= room_before)
        return 1;
    grown = new_slots(room_before + 1, sizeof *grown, &room);
    if (grown == NULL)
        return 0;
    tree.stacks = grown;
    tree.stacks_room = room;
    for (i = 0; i < room_before; i++)
        if (before[i].node != 0)
            *slot_of(before[i].hash) = before[i];
    table_give_back(before, room_before, sizeof *before);
    return 1;
}

/* Store the node of the stack with this hash.  Without memory, nothing is stored, and the
   frames of the stack are walked each time. */
static void remember_stack(uint64_t hash, uint32_t node)
{
    struct stack *stack;

    if (tree.stacks_count == MOST_STACKS)
        forget_stacks();
    if (!have_stack_slots())
        return;
    stack = slot_of(hash);
    stack->hash = hash;
    stack->node = node;
    tree.stacks_count++;
}

int64_t stack_tree_node(const stack_word *words, size_t count)
{
    uint64_t hash = hash_of_stack(words, count);
    uint32_t node = tree.stacks_room == 0 ? 0 : slot_of(hash)->node;

    if (node != 0)
        return tree.nodes_before + node;
    if (count == 0)
        return 0;
    if (is_full())
        forget_all();
    node = walk(words, count);
    if (node == 0)
        return STACK_LOST;
    remember_stack(hash, node);
    return tree.nodes_before + node;
}

/* ____________________________________________________________ */
/* writing to the profile */

static uint32_t told_frame(uint32_t index)
{
    struct frame *frame = &tree.frames[index - 1];

    if (frame->told == 0) {
        frame->told = ++tree.frames_told;
        tree.tell_frame(frame->kind, frame->address);
    }
    return frame->told;
}

int64_t stack_tree_tell(int64_t number)
{
    static uint32_t path[STACK_MAX_WORDS / 2];      /* nodes from the innermost frame on */
    size_t depth = 0;
    uint32_t index, parent;

    if (number <= tree.nodes_before)
        return number == 0 ? 0 : STACK_LOST;
    for (index = (uint32_t)(number - tree.nodes_before);
         index != 0 && tree.nodes[index - 1].told == 0;
         index = tree.nodes[index - 1].parent)
        path[depth++] = index;
    parent = index == 0 ? 0 : tree.nodes[index - 1].told;
    while (depth > 0) {                 /* write a parent before its child */
        struct node *node = &tree.nodes[path[--depth] - 1];
        uint32_t frame = told_frame(node->frame);
        tree.tell_node(parent, frame);
        parent = node->told = ++tree.nodes_told;
    }
    return parent;
}

static int has_told(int64_t kind, int64_t address)
{
    uint32_t index = find_frame(hash_of_frame(kind, address), kind, address);

    return index != 0 && tree.frames[index - 1].told != 0;
}

int stack_tree_has_told(int64_t address)
{
    return has_told(INTERPRETED, address) || has_told(COMPILED, address);
}

/* ____________________________________________________________ */
/* keys of stacks */

void stack_tree_remember(uint64_t key, int64_t node)
{
    size_t i = (size_t)(key % KEYS);

    known[i].key = key;
    known[i].node = node;
    known[i].uses = 0;
}

int64_t stack_tree_known(uint64_t key)
{
    size_t i = (size_t)(key % KEYS);

    if (known[i].key != key || known[i].uses == STACK_KEY_USES)
        return STACK_LOST;
    known[i].uses++;
    return known[i].node;
}
