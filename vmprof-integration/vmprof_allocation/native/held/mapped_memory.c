#define _GNU_SOURCE
#include "mapped_memory.h"

#include <sys/mman.h>

#include "question.h"

/* Bytes that are mapped now, and their maximum */
static int64_t present, peak;

static void count(int64_t size)
{
    present += size;
    peak = present > peak ? present : peak;
}

int64_t room_taken(void)
{
    return peak;
}

static void *map(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        held_fail(HELD_NO_MEMORY);
    return at;
}

void *room_map(size_t size)
{
    count((int64_t)size);
    return map(size);
}

void room_unmap(void *at, size_t size)
{
    munmap(at, size);
    count(-(int64_t)size);
}

void room_begin(struct room *r, size_t item, size_t most)
{
    r->item = item;
    r->count = 0;
    r->most = most;
    r->at = map(item * most);
}

void room_grow(struct room *r)
{
    size_t size = r->item * r->most;

    r->at = mremap(r->at, size, 2 * size, MREMAP_MAYMOVE);
    if (r->at == MAP_FAILED)
        held_fail(HELD_NO_MEMORY);
    r->most *= 2;
}

void room_end(struct room *r)
{
    size_t used = r->count > r->most / 2 ? r->count : r->most / 2;

    if (r->at == NULL)
        return;
    count((int64_t)(r->item * used));
    count(-(int64_t)(r->item * used));
    munmap(r->at, r->item * r->most);
    r->at = NULL;
}
