#include "codemap.h"

#define LEVELS          8

/* as in RPython's skiplist.c and codemap.c */
struct node {
    uintptr_t address;
    const struct {
        uint32_t size;
        uint32_t numbers;       /* 4 numbers for each entry */
        const struct codemap_entry *entries;
    } *piece;
    const struct node *next[LEVELS];    /* a node may have fewer levels */
};

static const struct node *first;        /* head of the list, without a piece */

void codemap_prepare(uintptr_t head)
{
    first = (const struct node *)head;
}

int codemap_is_known(void)
{
    return first != NULL;
}

/* Return the last node whose piece begins at or before 'address', or 'first' if there is no
   such piece. */
static const struct node *search(uintptr_t address)
{
    const struct node *node = first, *next;
    int level;

    for (level = LEVELS - 1; level >= 0; level--)
        while ((next = node->next[level]) != NULL && next->address <= address)
            node = next;
    return node;
}

static void fill(struct codemap_piece *piece, const struct node *node)
{
    piece->start = node->address;
    piece->size = node->piece->size;
    piece->entries = node->piece->entries;
    piece->count = (int)(node->piece->numbers / 4);
}

int codemap_find(uintptr_t address, struct codemap_piece *piece)
{
    const struct node *node;

    if (first == NULL)
        return 0;
    node = search(address);
    if (node == first || address - node->address >= node->piece->size)
        return 0;
    fill(piece, node);
    return 1;
}

int codemap_at(const struct codemap_piece *piece, int64_t offset,
               int which[CODEMAP_DEEPEST])
{
    int i = 0, found = 0;

    while (i < piece->count && piece->entries[i].start <= offset &&
           found < CODEMAP_DEEPEST) {
        const struct codemap_entry *entry = &piece->entries[i];
        if (entry->stop > offset)
            which[found++] = i++;
        else if (entry->next / 4 > i)
            i = (int)(entry->next / 4);
        else
            break;              /* PyPy does not write such an entry */
    }
    return found;
}
