#pragma once
/* The sampled blocks of native memory that are in use.
 *
 * Each free() in the process has to find out whether its block is sampled, and nearly no
 * block is.  So a filter is read first.  The filter has 16384 bytes, each of which counts
 * the sampled blocks at addresses that differ by multiples of 256 KiB, and stays in the
 * processor's L1 cache.  A byte that has reached 255 keeps this value.  If a byte is not 0,
 * a hash table with open addressing shows whether the block is sampled.
 *
 * The filter is read without a lock.  For all other functions, the caller holds the lock of
 * raw_memory.c.
 */

#include <stddef.h>
#include <stdint.h>

#include "recorder.h"

/* A sampled block in use, and its sample */
struct block {
    uintptr_t address;
    struct raw_sample sample;
};

/* Maximum number of blocks.  The table is mapped memory of at most 96 MiB. */
#define BLOCKS_MOST     ((size_t)1 << 20)

#define BLOCKS_FILTER   ((size_t)1 << 14)
/* The filter: numbers of sampled blocks, by blocks_place() */
extern uint8_t blocks_filter[BLOCKS_FILTER];

/* Return the index in the filter for an address.  The lowest 4 bits of the address do not
   count. */
static inline size_t blocks_place(uintptr_t address)
{
    return address >> 4 & (BLOCKS_FILTER - 1);
}

/* Return 0 if no sampled block is at the address.  Otherwise, a block may be there. */
static inline int blocks_may_have(const void *address)
{
    return __atomic_load_n(&blocks_filter[blocks_place((uintptr_t)address)],
                           __ATOMIC_ACQUIRE) != 0;
}

/* Add a block.  The table must not have a block at the same address.  Returns 0 if no
   memory is available, or if the table is full. */
int blocks_add(const struct block *block);

/* Return the sampled block at 'address', or NULL if no sampled block is there.  The pointer
   is valid until the next change of the table. */
const struct block *blocks_find(uintptr_t address);

/* Remove the sampled block at 'address' and store it in 'taken'.  Returns 0 if no sampled
   block is there. */
int blocks_take(uintptr_t address, struct block *taken);

/* Call tell() for each block. */
void blocks_each(void (*tell)(const struct block *block));

/* Remove all blocks, and unmap the table. */
void blocks_clear(void);
