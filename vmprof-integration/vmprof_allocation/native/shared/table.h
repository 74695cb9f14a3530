#pragma once
/* Tables that grow by moving: a program may be allowed little address space.
 * Include it where _GNU_SOURCE is defined. */

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#define TABLE_FIRST_ROOM    ((size_t)256)

/* Is there room for one entry more than 'count'?  Entries have 'size' bytes; at
   first '*table' is NULL and '*room', in entries, is 0.  No, if there would be
   more than 'most', or if there is no memory. */
static inline int table_has_room(void **table, size_t *room, size_t count,
                                 size_t size, size_t most)
{
    size_t next = *room == 0 ? TABLE_FIRST_ROOM : 2 * *room;
    int saved_errno = errno;
    void *map;

    if (count < *room)
        return 1;
    if (next > most)
        return 0;
    map = *room == 0
        ? mmap(NULL, next * size, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        : mremap(*table, *room * size, next * size, MREMAP_MAYMOVE);
    if (map == MAP_FAILED) {
        errno = saved_errno;
        return 0;
    }
    *table = map;
    *room = next;
    return 1;
}

static inline void table_give_back(void *table, size_t room, size_t size)
{
    if (table != NULL)
        munmap(table, room * size);
}
