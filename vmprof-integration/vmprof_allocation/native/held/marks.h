#pragma once
/* The set of all visited objects: a bit for each 8-byte word of the heap, which is set
   if a visited object begins there.  After marks_count(), the objects are also numbered
   in the order of their addresses.  The bits are in chunks of 1 MiB of the address
   space, which exist only where objects were visited. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define MARKS_CHUNK     20      /* number of address bits within a chunk (1 MiB) */
#define MARKS_WORDS     ((1u << MARKS_CHUNK) / 8 / 64)
#define MARKS_LOW(address)      ((uint32_t)((address) & ((1u << MARKS_CHUNK) - 1)) / 8)

/* The bits of 1 MiB of the address space */
struct marks_chunk {
    uint64_t met[MARKS_WORDS];  /* a bit for each 8-byte word of the heap, which is set if
                                   a visited object begins there */
    uint64_t start;             /* address of the first byte of the chunk */
    uint64_t before;            /* number of the first object in this chunk */
    uint32_t rank[MARKS_WORDS]; /* how many objects in this chunk have their bit before
                                   each word of 'met' */
};

/* Start with an empty set. */
void marks_begin(void);
/* Unmap the set. */
void marks_end(void);

/* The chunks by address: the table 'marks_upper' has an index of MARKS_UPPER bits, and
   refers to tables that have an index of MARKS_LOWER bits and refer to chunks.  With the
   MARKS_CHUNK bits within a chunk, these bits cover the addresses of user space. */
#define MARKS_ADDRESS   48      /* user space has 48 bits on AArch64, and 47 on x86-64 */
#define MARKS_LOWER     13
#define MARKS_UPPER     (MARKS_ADDRESS - MARKS_CHUNK - MARKS_LOWER)
extern struct marks_chunk ***marks_upper;

/* Return the chunk that contains an address, or NULL if the chunk does not exist. */
static inline struct marks_chunk *marks_find(uint64_t address)
{
    struct marks_chunk **lower = address >> MARKS_ADDRESS
        ? NULL : marks_upper[address >> (MARKS_CHUNK + MARKS_LOWER)];

    return lower == NULL ? NULL
                         : lower[address >> MARKS_CHUNK & ((1u << MARKS_LOWER) - 1)];
}

/* Return the chunk that contains an address, and create the chunk if it does not exist.
   Fails if the address is outside of user space. */
struct marks_chunk *marks_chunk(uint64_t address);

/* Return the number of chunks. */
uint32_t marks_chunks(void);
/* Return a chunk by its number from 0, in the order in which the chunks were created. */
struct marks_chunk *marks_chunk_number(uint32_t number);

/* Add an object to the set.  Returns 1 if the object was not in the set before, else 0. */
static inline int marks_meet(uint64_t address)
{
    uint64_t *word = &marks_chunk(address)->met[MARKS_LOW(address) / 64];
    uint64_t bit = (uint64_t)1 << MARKS_LOW(address) % 64, was = *word & bit;

    *word |= bit;
    return was == 0;
}

/* Number the objects of the set, from 0.  No object may be added after this.  Returns how
   many objects the set has. */
uint64_t marks_count(void);

/* Return how many bits of a word are set.  __builtin_popcountll() would be a function call,
   because the processor may lack the instruction. */
static inline uint32_t marks_ones(uint64_t word)
{
    word -= word >> 1 & 0x5555555555555555;
    word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return (uint32_t)(word * 0x0101010101010101 >> 56);
}

/* Return the number that marks_count() gave to an object, or -1 if the object is not in the
   set. */
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
