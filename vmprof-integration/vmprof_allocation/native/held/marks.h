#pragma once
/* A bit for each word of the heap: what begins there was met.  And the number of each
 * object that was, in the order of addresses. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define MARKS_CHUNK     20      /* bits of an address within a chunk, of 1 MiB */
#define MARKS_WORDS     ((1u << MARKS_CHUNK) / 8 / 64)
#define MARKS_LOW(address)      ((uint32_t)((address) & ((1u << MARKS_CHUNK) - 1)) / 8)

struct marks_chunk {
    uint64_t met[MARKS_WORDS];
    uint64_t start;             /* address */
    uint64_t before;            /* objects in other chunks, ... */
    uint32_t rank[MARKS_WORDS]; /* and in this one, in front of each word */
};

void marks_begin(void);
void marks_end(void);

/* Chunks by address: two tables, one below the other, of as many bits of an address as
   processes have */
#define MARKS_ADDRESS   48      /* AArch64: 48; x86-64: 47 */
#define MARKS_LOWER     13
#define MARKS_UPPER     (MARKS_ADDRESS - MARKS_CHUNK - MARKS_LOWER)
extern struct marks_chunk ***marks_upper;

/* The chunk of an address; or NULL */
static inline struct marks_chunk *marks_find(uint64_t address)
{
    struct marks_chunk **lower = address >> MARKS_ADDRESS
        ? NULL : marks_upper[address >> (MARKS_CHUNK + MARKS_LOWER)];

    return lower == NULL ? NULL
                         : lower[address >> MARKS_CHUNK & ((1u << MARKS_LOWER) - 1)];
}

/* It is made if there is none. */
struct marks_chunk *marks_chunk(uint64_t address);

/* All of them */
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

/* Count, when all are met: returns how many. */
uint64_t marks_count(void);

/* Not the compiler's, which is a call where processors may lack the instruction */
static inline uint32_t marks_ones(uint64_t word)
{
    word -= word >> 1 & 0x5555555555555555;
    word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return (uint32_t)(word * 0x0101010101010101 >> 56);
}

/* Then: its number, from 0 on; -1: what is there was not met. */
static inline int64_t marks_rank(uint64_t address)
{
    const struct marks_chunk *chunk = marks_find(address);
    uint32_t low = MARKS_LOW(address), word = low / 64;
    uint64_t bit = (uint64_t)1 << low % 64;

    if (chunk == NULL || (chunk->met[word] & bit) == 0)
        return -1;
    return (int64_t)(chunk->before + chunk->rank[word] +
                     marks_ones(chunk->met[word] & (bit - 1)));
}

#pragma GCC visibility pop
