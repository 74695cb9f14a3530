#pragma once
/* Tables in mapped memory that double in size when they are full, and may move then.
   They begin small, because the program may be allowed little address space.  Include
   this header where _GNU_SOURCE is defined. */

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/* Number of entries for which a new table has room */
#define TABLE_FIRST_ROOM    ((size_t)256)

/* Make room for one more entry in a table with 'count' entries, and return whether there is
   room.  Entries have 'size' bytes; '*room' is the size of the table in entries.  For a new
   table, '*table' is NULL and '*room' is 0.  Returns 0, and changes nothing, if the table
   would have more than 'most' entries, or if the system has no memory.  Keeps errno. */
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

/* Unmap a table of 'room' entries; 'table' may be NULL. */
static inline void table_give_back(void *table, size_t room, size_t size)
{
    if (table != NULL)
        munmap(table, room * size);
}
