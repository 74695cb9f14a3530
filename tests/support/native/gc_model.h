#pragma once
/* A model of a garbage collector that changes nursery_free and nursery_top as incminimark
 * does.  It is a part of nursery_harness.c, which contains the program. */

#define MAX_PINNED      8
#define MAX_FINALIZERS  256
#define ALIGNED(n)      (((n) & 7) == 0)

struct object {                 /* header of each object of the model */
    uint64_t number;
    uint64_t size;
};

struct pinned {
    char *at;
    intptr_t size;
};

static struct gc {
    char *nursery_free;
    char *nursery_top;
    char *nursery;
    char *true_top;             /* value of nursery_top if sampling did not change it */

    struct pinned pinned[MAX_PINNED];
    int pinned_count;
    /* objects that were pinned at the last collection */
    struct pinned barrier[MAX_PINNED];
    int barrier_count, next_barrier;

    int finalizer_count;        /* number of finalizers that the next collection must run */
    intptr_t finalizer[MAX_FINALIZERS];
    int steps, no_memory, external_fails, external_collects;
} gc;

static intptr_t nursery_size, tiny;
static int rotate, max_pinned;
static char *arena[2];

static unsigned char *taken;    /* by 8 bytes of the nursery: whether they are allocated */
static char **small_object;     /* the address of each small object, by its number */
static int64_t objects, max_objects;
static int with_engine, hooked, abandoned;
static char elsewhere[32];      /* memory of all large objects, which share one address */
static int depth_in_reserve;    /* number of calls of collect_and_reserve() that run */

static void *(*collect_and_reserve)(void *, intptr_t);
static void (*minor_collection)(void *);
static void *(*external_malloc)(void *, uintptr_t, intptr_t, uintptr_t);

static void allocate(intptr_t size);
static void allocate_large(int64_t size);
static void memory_pressure(void);

static size_t word_of(const char *p)
{
    return (size_t)(p - gc.nursery) / 8;
}

static void set_top(char *top)
{
    gc.nursery_top = gc.true_top = top;
}

static void occupy(char *at, intptr_t size)
{
    CHECK(ALIGNED((uintptr_t)at));
    CHECK(at >= gc.nursery && at + size <= gc.nursery + nursery_size);
    CHECK(memchr(taken + word_of(at), 1, (size_t)size / 8) == NULL);
    memset(taken + word_of(at), 1, (size_t)size / 8);
}

static int by_address(const void *a, const void *b)
{
    const struct pinned *p = a, *q = b;

    return (p->at > q->at) - (p->at < q->at);
}

static void gc_minor_collection(void *self)
{
    int i;

    CHECK(self == &gc);
    CHECK(gc.nursery_top == gc.true_top);
    CHECK(gc.nursery_free == NULL || ALIGNED((uintptr_t)gc.nursery_free));
    printf("collection\n");
    memset(taken, 0, (size_t)nursery_size / 8);
    if (rotate && gc.pinned_count == 0) {
        memset(gc.nursery, 0xdd, (size_t)nursery_size);
        gc.nursery = gc.nursery == arena[0] ? arena[1] : arena[0];
    }
    qsort(gc.pinned, (size_t)gc.pinned_count, sizeof *gc.pinned, by_address);
    for (i = 0; i < gc.pinned_count; i++) {
        gc.barrier[i] = gc.pinned[i];
        occupy(gc.pinned[i].at, gc.pinned[i].size);
    }
    gc.barrier_count = gc.pinned_count;
    gc.next_barrier = 0;
    gc.nursery_free = gc.nursery;
    set_top(gc.barrier_count > 0 ? gc.barrier[0].at
                                 : gc.nursery + nursery_size);
}

static void collect_with_progress(void)
{
    intptr_t finalizer[MAX_FINALIZERS];
    int count = gc.finalizer_count, steps = gc.steps, i;

    memcpy(finalizer, gc.finalizer, sizeof finalizer);
    gc.finalizer_count = gc.steps = 0;
    for (i = 0; i <= steps; i++)
        minor_collection(&gc);
    for (i = 0; i < count; i++)
        if (finalizer[i] == 0)
            memory_pressure();
        else if (finalizer[i] < 0)
            allocate_large(-(int64_t)finalizer[i]);
        else
            allocate(finalizer[i]);
}

static void jump_over_pinned(void)
{
    const struct pinned *pinned = &gc.barrier[gc.next_barrier];
    struct object found;

    /* the GC reads the size of the pinned object at nursery_top */
    CHECK(gc.nursery_top == pinned->at);
    memcpy(&found, gc.nursery_top, sizeof found);
    CHECK((intptr_t)found.size == pinned->size);
    CHECK(small_object[found.number] == pinned->at);
    gc.nursery_free = gc.nursery_top + found.size;
    gc.next_barrier++;
    set_top(gc.next_barrier < gc.barrier_count
                ? gc.barrier[gc.next_barrier].at : gc.nursery + nursery_size);
}

static void *gc_collect_and_reserve(void *self, intptr_t size)
{
    int collections = 0;
    char *result;

    CHECK(self == &gc);
    CHECK(gc.nursery_top == gc.true_top);
    CHECK(ALIGNED((uintptr_t)gc.nursery_free));
    CHECK(gc.nursery_free - size <= gc.nursery_top);
    /* the program calls this function only if the nursery seems full */
    CHECK(gc.nursery_free > gc.nursery_top);
    depth_in_reserve++;
    do {
        gc.nursery_free = NULL;
        if (gc.next_barrier < gc.barrier_count)
            jump_over_pinned();
        else if (++collections == 1) {
            collect_with_progress();
            if (gc.no_memory) {
                gc.no_memory = 0;
                depth_in_reserve--;
                return NULL;
            }
        }
        else {
            CHECK(collections == 2);
            minor_collection(&gc);
        }
        CHECK(gc.nursery_top == gc.true_top);
        result = gc.nursery_free;
    } while (result + size > gc.nursery_top);
    gc.nursery_free = result + size;
    if (tiny > 0 && gc.nursery_top - gc.nursery_free > tiny)
        gc.nursery_free = gc.nursery_top - tiny;
    depth_in_reserve--;
    return result;
}

static void *gc_external_malloc(void *self, uintptr_t type, intptr_t length,
                                uintptr_t young)
{
    CHECK(self == &gc && type == 24 && length > 0 && young == 1);
    if (gc.external_collects) {
        gc.external_collects = 0;
        collect_with_progress();
    }
    return gc.external_fails ? NULL : elsewhere;
}

/* Collect as _minor_collection() does, by a function that is not hooked. */
static void unseen_collection(void)
{
    gc.nursery_top = gc.true_top;
    gc.nursery_free = NULL;
    gc_minor_collection(&gc);
}

static void memory_pressure(void)
{
    gc.nursery_free = gc.nursery_top;
    if (depth_in_reserve == 0)
        printf("pressure\n");
}
