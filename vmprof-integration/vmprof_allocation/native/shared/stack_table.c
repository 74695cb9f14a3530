#define _GNU_SOURCE
#include "stack_table.h"

#include <string.h>
#include <sys/mman.h>

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
static unsigned char wanted[MAX_STACKS];
static uint32_t wanted_count;

/* Stacks that were wanted, one after the other: number, words that it shares
   with the one before it, at its end, how many others, these.  'kept' is of the
   present numbers, 'earlier' of those before stack_table_turn(). */
static struct kept {
    int64_t *words;
    size_t count, room;
} kept, earlier;
#define KEPT_HEAD       3

void stack_table_forget_keys(void)
{
    memset(known, 0, sizeof known);
}

static void drop(struct kept *k)
{
    if (k->words != NULL)
        munmap(k->words, k->room * sizeof *k->words);
    memset(k, 0, sizeof *k);
}

static int has_room(struct kept *k, size_t count)
{
    size_t room = k->room == 0 ? 4096 : k->room;
    void *map;

    while (k->count + count > room)
        room *= 2;
    if (room == k->room)
        return 1;
    if (room > STACK_MAX_KEPT)
        return 0;
    map = k->room == 0
        ? mmap(NULL, room * sizeof *k->words, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        : mremap(k->words, k->room * sizeof *k->words, room * sizeof *k->words,
                 MREMAP_MAYMOVE);
    if (map == MAP_FAILED)
        return 0;
    k->words = map;
    k->room = room;
    return 1;
}

/* What is wanted of the table, to the end of 'kept' */
static void keep_wanted(void)
{
    static struct stack_walk walk;
    uint64_t counted;
    size_t shared, least = 0;
    int64_t *p;

    memset(&walk, 0, sizeof walk);
    while (wanted_count > 0 && stack_table_next(&walk, &counted, &shared)) {
        uint16_t entry = nodes[walk.node].entry;
        if (least > shared)
            least = shared;
        if (!wanted[entry - 1])
            continue;
        wanted_count--;
        if (!has_room(&kept, KEPT_HEAD + walk.count - least))
            break;
        p = kept.words + kept.count;
        p[0] = (int64_t)(numbers_before + entry);
        p[1] = (int64_t)least;
        p[2] = (int64_t)(walk.count - least);
        memcpy(p + KEPT_HEAD, walk.word + STACK_MAX_WORDS - walk.count,
               (walk.count - least) * sizeof *p);
        kept.count += KEPT_HEAD + walk.count - least;
        least = walk.count;
    }
    memset(wanted, 0, entry_count);
    wanted_count = 0;
}

void stack_table_clear(void)
{
    if (wanted_count > 0)
        keep_wanted();
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
    memset(wanted, 0, sizeof wanted);
    wanted_count = 0;
    stack_table_turn();
    stack_table_drop();
}

void stack_table_turn(void)
{
    stack_table_clear();
    numbers_before = nodes_before = frames_before = 0;
    drop(&earlier);
    earlier = kept;
    memset(&kept, 0, sizeof kept);
}

void stack_table_drop(void)
{
    drop(&earlier);
}

int stack_table_next_kept(struct stack_kept *k)
{
    const int64_t *p = earlier.words + k->at;

    if (k->at == earlier.count)
        return 0;
    k->number = (uint64_t)p[0];
    k->count = (size_t)(p[1] + p[2]);
    memcpy(k->word + STACK_MAX_WORDS - k->count, p + KEPT_HEAD,
           (size_t)p[2] * sizeof *p);
    k->at += KEPT_HEAD + (size_t)p[2];
    return 1;
}

void stack_table_want(uint64_t number)
{
    uint64_t i = number - numbers_before - 1;

    /* one that the table had before is kept, or it was not wanted then */
    if (i >= entry_count || wanted[i])
        return;
    wanted[i] = 1;
    wanted_count++;
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

static uint64_t number_of(const stack_word *words, size_t count, int counted,
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
            entry->counted += (uint64_t)counted;
            return numbers_before + slots[slot];
        }
    }
    entry = &entries[entry_count];
    slots[slot] = (uint16_t)++entry_count;
    entry->hash = hash;
    entry->counted = (uint64_t)counted;
    nodes[define(words, count, &end)].entry = (uint16_t)entry_count;
    *definition = text;
    *size = (size_t)(end - text);
    return numbers_before + entry_count;
}

uint64_t stack_table_count(const stack_word *words, size_t count,
                           const char **definition, size_t *size)
{
    return number_of(words, count, 1, definition, size);
}

uint64_t stack_table_define(const stack_word *words, size_t count,
                            const char **definition, size_t *size)
{
    uint64_t number = number_of(words, count, 0, definition, size);

    stack_table_want(number);
    return number;
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
