#define _GNU_SOURCE
#include "blocks.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define FULL            255     /* maximum of a byte of the filter */
#define FIRST_SIZE      ((size_t)1 << 12)

uint8_t blocks_filter[BLOCKS_FILTER] __attribute__((aligned(64)));

/* The hash table.  'size' is its number of entries, a power of two.  At least half of the
   entries are empty, with address 0. */
static struct block *table;
static size_t size, count;

static void filter_add(uintptr_t address)
{
    uint8_t *byte = &blocks_filter[blocks_place(address)];

    if (*byte < FULL)
        __atomic_store_n(byte, *byte + 1, __ATOMIC_RELEASE);
}

static void filter_remove(uintptr_t address)
{
    uint8_t *byte = &blocks_filter[blocks_place(address)];

    if (*byte < FULL)
        __atomic_store_n(byte, *byte - 1, __ATOMIC_RELEASE);
}

static size_t first_place(uintptr_t address)
{
    return (address >> 4) * 0x9e3779b97f4a7c15u >> 24 & (size - 1);
}

/* Return the index in 'table' of the block at 'address', or of the empty entry at which
   blocks_add() would add this block. */
static size_t place_of(uintptr_t address)
{
    size_t i = first_place(address);

    while (table[i].address != 0 && table[i].address != address)
        i = (i + 1) & (size - 1);
    return i;
}

/* Map an empty table.  malloc() must not be called, because this function may run within
   malloc(). */
static struct block *pages(size_t entries)
{
    int saved_errno = errno;
    void *map = mmap(NULL, entries * sizeof *table, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    errno = saved_errno;
    return map == MAP_FAILED ? NULL : map;
}

/* Make room for another block.  Returns 0 if no memory is available, or if the table is
   full. */
static int grow(void)
{
    struct block *old = table, *new;
    size_t old_size = size, i;

    if (count * 2 < size)
        return 1;
    if (count == BLOCKS_MOST)
        return 0;
    new = pages(size == 0 ? FIRST_SIZE : 2 * size);
    if (new == NULL)
        return 0;
    table = new;
    size = size == 0 ? FIRST_SIZE : 2 * size;
    for (i = 0; i < old_size; i++)
        if (old[i].address != 0)
            table[place_of(old[i].address)] = old[i];
    if (old != NULL)
        munmap(old, old_size * sizeof *old);
    return 1;
}

int blocks_add(const struct block *block)
{
    if (!grow())
        return 0;
    table[place_of(block->address)] = *block;
    count++;
    filter_add(block->address);
    return 1;
}

const struct block *blocks_find(uintptr_t address)
{
    const struct block *found = count == 0 ? NULL : &table[place_of(address)];

    return found != NULL && found->address != 0 ? found : NULL;
}

/* Return whether the block at the index 'at', whose search begins at the index 'from', may
   move to the index 'hole'. */
static int may_move(size_t from, size_t at, size_t hole)
{
    return hole <= at ? from <= hole || from > at : from <= hole && from > at;
}

int blocks_take(uintptr_t address, struct block *taken)
{
    const struct block *found = blocks_find(address);
    size_t hole, i;

    if (found == NULL)
        return 0;
    *taken = *found;
    hole = (size_t)(found - table);
    count--;
    filter_remove(address);
    for (i = (hole + 1) & (size - 1); table[i].address != 0; i = (i + 1) & (size - 1))
        if (may_move(first_place(table[i].address), i, hole)) {
            table[hole] = table[i];
            hole = i;
        }
    table[hole].address = 0;
    return 1;
}

void blocks_each(void (*tell)(const struct block *block))
{
    size_t i;

    for (i = 0; i < size; i++)
        if (table[i].address != 0)
            tell(&table[i]);
}

void blocks_clear(void)
{
    if (table != NULL)
        munmap(table, size * sizeof *table);
    table = NULL;
    size = count = 0;
    memset(blocks_filter, 0, sizeof blocks_filter);
}
