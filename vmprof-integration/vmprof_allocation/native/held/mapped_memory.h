#pragma once
/* Memory for the analysis of the heap, from mmap(), because the forked child must not call
   malloc(): another thread may have held malloc's lock at the fork.  If the system has no
   memory, held_fail() ends the process; so no function here returns a failure.
   Identifiers call a growing array a *room*. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A growing array */
struct room {
    char *at;
    size_t item, count, most;   /* bytes of an item, number of items, and number of items
                                   that fit */
};

/* Return 'size' zeroed bytes, aligned to a page. */
void *room_map(size_t size);
/* Return memory of room_map() to the system; 'size' must be the same. */
void room_unmap(void *at, size_t size);
/* Initialize an empty array for 'most' items of 'item' bytes. */
void room_begin(struct room *, size_t item, size_t most);
/* Double the number of items that fit.  The array may move. */
void room_grow(struct room *);
/* Unmap an array.  Does nothing if the array was unmapped before. */
void room_end(struct room *);

/* Return the peak size of the mapped memory in bytes.  The unused end of a growing array
   does not count, because its pages are never touched. */
int64_t room_taken(void);

/* Append an item, and return its address, which is valid until the next addition. */
static inline void *room_add(struct room *r)
{
    if (r->count == r->most)
        room_grow(r);
    return r->at + r->item * r->count++;
}

/* Append a word to an array of words. */
static inline void room_add_word(struct room *r, uint64_t word)
{
    *(uint64_t *)room_add(r) = word;
}

/* Return the word at index i in an array of words. */
static inline uint64_t room_word(const struct room *r, size_t i)
{
    return ((const uint64_t *)r->at)[i];
}

#pragma GCC visibility pop
