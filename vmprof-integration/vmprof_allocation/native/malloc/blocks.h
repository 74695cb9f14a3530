#pragma once
/* The sampled blocks of memory that are in use, as far as we saw.
 *
 * Each free() of the process asks whether its block is sampled, and hardly any is.  So a
 * filter answers first: one byte for each of 16384 addresses, 16 bytes apart, which counts the
 * sampled blocks there, and stays in the processor's nearest cache.  What has counted to 255
 * stays there.  Behind it is a hash table with open addressing.
 *
 * The filter is read without a lock; for all else, the caller has one.
 */

#include <stddef.h>
#include <stdint.h>

#include "recorder.h"

struct block {
    uintptr_t address;
    struct raw_sample sample;
};

/* In memory of our own: 96 MiB of it at most */
#define BLOCKS_MOST     ((size_t)1 << 20)

#define BLOCKS_FILTER   ((size_t)1 << 14)
extern uint8_t blocks_filter[BLOCKS_FILTER];

static inline size_t blocks_place(uintptr_t address)
{
    return address >> 4 & (BLOCKS_FILTER - 1);
}

/* 0: it is none of them. */
static inline int blocks_may_have(const void *address)
{
    return __atomic_load_n(&blocks_filter[blocks_place((uintptr_t)address)],
                           __ATOMIC_ACQUIRE) != 0;
}

/* There is none at its address.  Returns 0 if there is no room for it. */
int blocks_add(const struct block *block);

/* The one at 'address', until the next change; NULL: there is none. */
const struct block *blocks_find(uintptr_t address);

/* Returns 1 if there was one at 'address', which is none any more. */
int blocks_take(uintptr_t address, struct block *taken);

void blocks_each(void (*tell)(const struct block *block));

/* Forget all of them, and give the memory back. */
void blocks_clear(void);
