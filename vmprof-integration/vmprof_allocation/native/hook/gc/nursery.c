#include "nursery.h"

#include "invariant.h"

struct nursery nursery;

/* Return a value for nursery_top that is not a multiple of 8 (nursery.h). */
static char *unaligned(char *point)
{
    return (char *)(((uintptr_t)point & ~(uintptr_t)7) | 1);
}

/* Account for 'bytes' bytes that were allocated before the sample point.  Draws a new gap
   if 'unknown' is true, or if this number of bytes is impossible. */
static void account(int64_t bytes, int unknown)
{
    if (unknown || bytes < 0 || bytes > nursery.sampler.gap) {
        sampler_draw(&nursery.sampler);
    }
    else {
        sampler_pass(&nursery.sampler, bytes);
        nursery.allocated += bytes;
    }
}

/* Restore the real top, and account for the bytes from counted_from up to 'upto', the end
   of the program's last object.  Returns 1 if 'upto' is not the end of an object, because
   of memory pressure. */
static int settle(char *upto)
{
    char *top = *nursery.top;
    int pressure, lost;
    int64_t interval;

    if (nursery.phase == NURSERY_OFF)
        return 0;
    pressure = lost = ((uintptr_t)upto & 7) != 0;
    if (top != nursery.placed_top) {
        /* code that we do not replace has changed nursery_top */
        nursery.real_top = top;
        lost = 1;
        nursery.surprises++;
    }
    *nursery.top = nursery.real_top;
    account(upto - nursery.counted_from, lost);
    nursery.pressures += pressure;
    /* another thread may set new_interval at any time, without the GIL */
    if (__atomic_load_n(&nursery.new_interval, __ATOMIC_RELAXED) != 0) {
        interval = __atomic_exchange_n(&nursery.new_interval, 0, __ATOMIC_SEQ_CST);
        sampler_set_interval(&nursery.sampler, interval);
    }
    return pressure;
}

/* Return whether 'collect_every' bytes were allocated since the last minor collection. */
static int is_collection_due(void)
{
    int64_t every = __atomic_load_n(&nursery.collect_every, __ATOMIC_RELAXED);

    return every > 0 && nursery.allocated - nursery.allocated_before >= every;
}

/* Lower nursery_top to the sample point if it is in this part of the nursery.  settle()
   restores nursery_top. */
static void place(void)
{
    char *point;

    if (nursery.phase == NURSERY_OFF)
        return;
    INVARIANT(!nursery.inside);
    point = nursery.placed_top = nursery.real_top = *nursery.top;
    nursery.counted_from = *nursery.free;
    nursery.wants_collection |= is_collection_due();
    if (nursery.wants_collection)
        point = nursery.counted_from;
    else if (nursery.sampler.gap < point - nursery.counted_from)
        point = nursery.counted_from + nursery.sampler.gap;
    *nursery.top = nursery.placed_top = unaligned(point);
}

/* Account for an object whose memory was just reserved, and take a sample if it contains
   the sampled byte.  'start' is the address of the object's header. */
static void allocated_object(const char *start, int64_t size,
                             enum nursery_place place)
{
    struct nursery_sample sample = { start, size, nursery.sampler.gap,
                                     nursery.sampler.interval, place };
    int64_t next;

    if (nursery.phase == NURSERY_OFF)
        return;
    nursery.allocated += size;
    if (!sampler_object(&nursery.sampler, size))
        return;
    next = nursery.take_sample(&sample);
    if (next != sample.interval)
        sampler_set_interval(&nursery.sampler, next);
}

void *nursery_collect_and_reserve(void *gc, intptr_t size)
{
    /* nursery_free already includes 'size' */
    char *end = *nursery.free;
    char *object = end - size;
    int is_full;

    if (nursery.inside || nursery.phase == NURSERY_OFF)
        return nursery.original.collect_and_reserve(gc, size);

    is_full = settle(object) || nursery.wants_collection;
    if (is_full)
        *nursery.free = nursery.real_top + size;
    if (is_full || end > nursery.real_top) {
        nursery.inside = 1;
        object = nursery.original.collect_and_reserve(gc, size);
        nursery.inside = 0;
    }
    if (object != NULL)
        allocated_object(object, size, NURSERY_SMALL);
    place();
    return object;
}

/* Restore the real top between two allocations.  place() lowers nursery_top again. */
static void settle_here(void)
{
    if (settle(*nursery.free))
        *nursery.free = nursery.real_top;
}

/* Run a minor collection.  If allocations are sampled, call before_collection() and
   after_collection(), too. */
static void collect(void *gc)
{
    nursery.collections++;
    nursery.wants_collection = 0;
    nursery.allocated_before = nursery.allocated;
    if (nursery.phase == NURSERY_OFF) {
        nursery.original.minor_collection(gc);
        return;
    }
    nursery.before_collection();
    nursery.original.minor_collection(gc);
    nursery.young_large = 0;
    nursery.after_collection();
}

void nursery_minor_collection(void *gc)
{
    if (nursery.inside) {
        collect(gc);
        return;
    }
    settle_here();
    nursery.inside = 1;
    collect(gc);
    nursery.inside = 0;
    place();
}

void *nursery_external_malloc(void *gc, uintptr_t type, intptr_t length,
                              uintptr_t young)
{
    void *object = nursery.original.external_malloc(gc, type, length, young);
    int64_t size;

    if (object == NULL)
        return NULL;
    size = nursery.large_size(type, length);
    if (young)
        nursery.young_large += size;
    if (nursery.inside)
        return object;
    settle_here();
    allocated_object(object, size, young ? NURSERY_LARGE : NURSERY_OLD);
    place();
    return object;
}

void nursery_clear_statistics(void)
{
    nursery.allocated = nursery.collections = 0;
    nursery.pressures = nursery.surprises = 0;
}

void nursery_start(int64_t interval, uint64_t seed, int fixed)
{
    sampler_start(&nursery.sampler, interval, seed, fixed);
    nursery.new_interval = 0;
    nursery_clear_statistics();
    nursery.young_large = 0;
    nursery.wants_collection = 0;
    nursery.collect_every = nursery.allocated_before = 0;
    nursery.phase = NURSERY_RUNNING;
    place();
}

void nursery_update(void)
{
    settle_here();
    place();
}

void nursery_collect_soon(void)
{
    if (nursery.phase == NURSERY_OFF)
        return;
    nursery.wants_collection = 1;
    nursery_update();
}

void nursery_stop(void)
{
    settle_here();
    nursery.phase = NURSERY_OFF;
}
