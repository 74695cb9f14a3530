#include "heap.h"

#include <stddef.h>

#include "figures.h"

/* values of incminimark's gc_state */
enum { MARKING = 1, SWEEPING = 2 };

/* The addresses of the GC's counts and of gc_state (hook_place), or NULL if they are
   unknown. */
static struct {
    const int64_t *blocks, *arenas, *large, *nursery;
    const int *state;
    int is_counted_on;
} place;

/* Number of calls of heap_seen(), and the bytes in used blocks at the last call. */
static int64_t seen_count, seen_blocks = INT64_MAX;

static int64_t word(const int64_t *address)
{
    return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

static int gc_state(void)
{
    return __atomic_load_n(place.state, __ATOMIC_ACQUIRE);
}

/* Read the GC's counts, without the GIL.  Returns 0 if they are invalid at the moment. */
static int read_heap(struct figures_heap *heap)
{
    int64_t count = word(&seen_count), least = word(&seen_blocks);
    int state = gc_state();
    int64_t blocks = word(place.blocks), arenas = word(place.arenas);
    int64_t large = word(place.large);

    heap->nursery = word(place.nursery);
    heap->used = blocks + large + heap->nursery;
    heap->has = arenas + large + heap->nursery;
    if (!place.is_counted_on &&
        (gc_state() != state || word(&seen_count) != count || state == SWEEPING ||
         (state == MARKING && blocks < least)))
        return 0;
    return blocks >= 0 && large >= 0 && heap->nursery > 0 && arenas >= blocks;
}

void heap_seen(void)
{
    if (place.state == NULL)
        return;
    __atomic_store_n(&seen_count, seen_count + 1, __ATOMIC_SEQ_CST);
    if (gc_state() != SWEEPING)
        __atomic_store_n(&seen_blocks, word(place.blocks), __ATOMIC_RELEASE);
    figures_heap_seen();
}

int64_t heap_old_bytes(void)
{
    if (place.state == NULL || (gc_state() == SWEEPING && !place.is_counted_on))
        return -1;
    return word(place.blocks) + word(place.large);
}

int64_t heap_has(void)
{
    if (place.state == NULL)
        return -1;
    return word(place.arenas) + word(place.large) + word(place.nursery);
}

void heap_prepare(const struct hook_place *p)
{
    if (p->heap_blocks == 0 || p->heap_arenas == 0 || p->heap_large == 0 ||
        p->heap_nursery == 0 || p->gc_state < 0)
        return;
    place.blocks = (const int64_t *)p->heap_blocks;
    place.arenas = (const int64_t *)p->heap_arenas;
    place.large = (const int64_t *)p->heap_large;
    place.nursery = (const int64_t *)p->heap_nursery;
    place.is_counted_on = p->heap_is_counted_on;
    place.state = (const int *)(p->gc + (uintptr_t)p->gc_state);
    figures_heap_by(read_heap);
}
