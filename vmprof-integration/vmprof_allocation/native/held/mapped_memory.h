#pragma once
/* Memory of our own: mapped, as malloc() may be locked.  It can't be too little: then
   the process has ended. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A table that grows */
struct room {
    char *at;
    size_t item, count, most;   /* bytes of an item; items, and how many fit */
};

void *room_map(size_t size);
void room_unmap(void *at, size_t size);
void room_begin(struct room *, size_t item, size_t most);
void room_grow(struct room *);
void room_end(struct room *);

/* Bytes that are touched, at most, until now */
int64_t room_taken(void);

static inline void *room_add(struct room *r)
{
    if (r->count == r->most)
        room_grow(r);
    return r->at + r->item * r->count++;
}

static inline void room_add_word(struct room *r, uint64_t word)
{
    *(uint64_t *)room_add(r) = word;
}

static inline uint64_t room_word(const struct room *r, size_t i)
{
    return ((const uint64_t *)r->at)[i];
}

#pragma GCC visibility pop
