#pragma once
/* A bit for each word of the heap: what begins there was met.  And the number of each
 * object that was, in the order of addresses. */

#include <stdint.h>

#pragma GCC visibility push(hidden)

#define MARKS_CHUNK     20      /* bits of an address within a chunk, of 1 MiB */
#define MARKS_WORDS     ((1u << MARKS_CHUNK) / 8 / 64)
#define MARKS_LOW(address)      ((uint32_t)((address) & ((1u << MARKS_CHUNK) - 1)) / 8)

struct marks_chunk {
    uint64_t met[MARKS_WORDS];
    uint64_t start;             /* address */
    uint64_t before;            /* objects in other chunks, ... */
    uint32_t rank[MARKS_WORDS / 8];     /* and in this one, in front of 8 words */
};

void marks_begin(void);
void marks_end(void);

/* The chunk of an address, which is made; or NULL */
struct marks_chunk *marks_chunk(uint64_t address);
struct marks_chunk *marks_find(uint64_t address);

uint32_t marks_chunks(void);
struct marks_chunk *marks_chunk_number(uint32_t number);

/* Returns 1 the first time. */
static inline int marks_meet(uint64_t address)
{
    uint64_t *word = &marks_chunk(address)->met[MARKS_LOW(address) / 64];
    uint64_t bit = (uint64_t)1 << MARKS_LOW(address) % 64, was = *word & bit;

    *word |= bit;
    return was == 0;
}

/* Count, when all are met: returns how many.  Then marks_rank(), from 0 on; -1: what is
   there was not met. */
uint64_t marks_count(void);
int64_t marks_rank(uint64_t address);

#pragma GCC visibility pop
