/* Drives objects.c with a model of a heap, and prints its reports.
 *
 *   begin SEED FIXED FOLLOW
 *   piece KEY AT INTERVAL OBJECTS...   a sample of a batched allocation in the nursery.
 *                     Each object is SIZE and a letter: d dies, p is promoted, n is pinned,
 *                     t is a text that dies, T a text that is promoted, N a text that is
 *                     pinned, x is not an object, and - was never written.  A type may
 *                     follow as :TYPE
 *   large KEY SIZE FATE CARDS          a young object outside of the nursery, d or p, after
 *                     CARDS bytes of card marks
 *   old KEY SIZE      an object that is old from birth
 *   sampling INTERVAL SEED FIXED FOLLOW    begin, with a sampler
 *   rate INTERVAL     set the sampler's interval
 *   allocate KEY OBJECTS...            a batched allocation, which the sampler may sample
 *   allocate-large KEY SIZE TYPE FATE CARDS    allocate-old KEY SIZE TYPE
 *   state N           the GC's state
 *   copy              copy the tracked objects for a heap snapshot
 *   examined KEY TIME the snapshot found that the objects of this sample are garbage
 *   unmark KEY WHICH  clear the mark of a promoted object, as if the marking had not
 *                     reached the object
 *   drop KEY PART     the program drops this object of a batched allocation
 *   unpin KEY PART FATE               d or p, at the next minor collection
 *   shrink KEY SIZE   shrink a text that is alone in its batch
 *   mark              a major collection marks the old objects that were not dropped
 *   sweep             a major collection frees the old objects without a mark
 *   unseen            a minor collection that bypasses the hook
 *   forget            the recorder has no profile from now on
 *   heap BYTES        the GC counts BYTES in old objects; from now on, "swept HEAP BEFORE
 *                     ALIVE NOT_KNOWN" is printed
 *   no-memory         tables cannot grow from now on
 *   minor             a minor collection
 *   end
 *
 * Prints the reports in their order: "sample KEY SIZE INTERVAL"; "young KEY OUTCOME TYPE
 * SIZE", with the LIVE SIZE of an object that became smaller; "freed KEY WHICH"; "lost KEY
 * WHICH"; and "minor" after the reports of a minor collection.  The default type of an
 * object is its size.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "patches/divert.h"
#include "gc/heap.h"
#include "gc/objects.h"
#include "recorder.h"
#include "malloc/raw_memory.h"
#include "sampler.h"
#include "gc/types.h"

#define CHECK(condition) \
    do { if (!(condition)) failed(#condition, __LINE__); } while (0)

#define VISITED     ((uint64_t)1 << 34)
#define CARDS       ((uint64_t)1 << 38)
#define PINNED      ((uint64_t)1 << 41)
/* the GC's type, the same in all objects' headers */
#define HEADER      0x18u
#define JUNK        0x123456789u
#define EMPTY       999                 /* in the model: type of an object without fields */
#define SWEEPING    2                   /* the GC's state while it sweeps */
#define TEXT        ((uint64_t)1 << 50) /* in the model: an array of characters */
#define NURSERY     (1 << 22)
#define MAX_OBJECTS (1 << 16)

struct nursery nursery;

static void failed(const char *what, int where)
{
    fprintf(stderr, "objects_harness.c:%d: not so: %s\n", where, what);
    exit(3);
}

/* ____________________________________________________________ */
/* The functions that objects.c calls */

static int has_profile = 1, has_lock, free_is_ours, tells_swept, has_no_memory;

/* Replaces mremap() of libc for table.h, and may fail on request. */
void *mremap(void *old, size_t size, size_t new_size, int flags, ...)
{
    if (has_no_memory) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mremap, old, size, new_size, flags, NULL);
}

void recorder_give_up(int64_t key)
{
    CHECK(!has_lock);
    printf("young %" PRId64 " %d 0 0\n", key, (int)OUTCOME_NOT_KNOWN);
}

int recorder_begin_facts(int64_t collections)
{
    CHECK(!has_lock && collections == nursery.collections);
    has_lock = has_profile;
    return has_profile;
}

void recorder_end_facts(void)
{
    CHECK(has_lock);
    has_lock = 0;
}

void recorder_young(int64_t key, enum outcome outcome, int64_t type,
                    int64_t size, int64_t live_size)
{
    CHECK(has_lock);
    printf("young %" PRId64 " %d %" PRId64 " %" PRId64, key, (int)outcome, type, size);
    if (live_size != 0)
        printf(" %" PRId64, live_size);
    printf("\n");
}

void recorder_freed(int64_t key, int which)
{
    CHECK(has_lock);
    printf("freed %" PRId64 " %d\n", key, which);
}

void recorder_freed_at(int64_t key, int which, int64_t time)
{
    CHECK(has_lock);
    printf("freed %" PRId64 " %d at %" PRId64 "\n", key, which, time);
}

void recorder_reached_again(int64_t key, int which, int64_t time)
{
    CHECK(has_lock);
    printf("reached %" PRId64 " %d at %" PRId64 "\n", key, which, time);
}

void recorder_lost(int64_t key, int which)
{
    CHECK(has_lock);
    printf("lost %" PRId64 " %d\n", key, which);
}

void recorder_swept(int64_t heap, int64_t heap_at_begin, double alive,
                    double not_known)
{
    CHECK(has_lock);
    if (tells_swept)
        printf("swept %" PRId64 " %" PRId64 " %.1f %.1f\n", heap, heap_at_begin,
               alive, not_known);
}

void recorder_collected(int64_t start, int64_t allocated)
{
    CHECK(has_lock && start == 1 && allocated >= 0);
    printf("minor\n");
}

void recorder_marked(int64_t majors, int64_t began)
{
    CHECK(has_lock && majors > 0 && began == 1);
}

void recorder_inherited(const struct inherited *object)
{
    CHECK(has_lock && object->key > 0);
    printf("inherited %" PRId64 " %d\n", object->key, object->which);
}

void recorder_expect_outcomes(int expected)
{
    (void)expected;
}

size_t recorder_memory(void)
{
    return 0;
}

int64_t recorder_stack_number(int64_t node)
{
    return node;
}

int64_t recorder_sampled_stack(void)
{
    return 0;
}

int64_t recorder_now(void)
{
    return 1;
}

int divert_set(int i, int diverted)
{
    CHECK(i == DIVERT_FREE);
    free_is_ours = diverted;
    return 0;
}

int types_are_known(void)
{
    return 1;
}

void types_begin(void)
{
}

void types_major_collection(void)
{
}

static uint64_t header(uintptr_t object)
{
    return *(const uint64_t *)object;
}

/* In this model, the type of an object is the object itself. */
struct type *types_of(uintptr_t object)
{
    return (uint32_t)header(object) == HEADER ? (struct type *)object : NULL;
}

static int64_t reserved_size(const struct type *type)
{
    return type == NULL ? 0 : ((const uint32_t *)(const void *)type)[2];
}

int64_t types_old_size(const struct type *type, uintptr_t object)
{
    return type != NULL && ((const uint32_t *)object)[3] == EMPTY
               ? 8 : reserved_size(type);
}

int types_may_shrink(const struct type *type)
{
    return (header((uintptr_t)type) & TEXT) != 0;
}

int64_t types_number(struct type *type, uintptr_t object)
{
    uint32_t number;

    CHECK(has_lock);
    if (type == NULL)
        return 0;
    number = ((const uint32_t *)object)[3];
    return number != 0 ? number : reserved_size(type);
}

/* ____________________________________________________________ */
/* The heap */

struct object {
    uint64_t *at;
    int64_t size;
    char fate;
    char *memory;               /* memory of a large object */
    int64_t key;
    int which;                  /* index among the promoted objects of the same sample */
    int part;                   /* index among all objects of the same batch */
    int is_dropped;
    int is_new;                 /* whether it was promoted since the last marking */
};

static char *arena, *nursery_free;
static int64_t heap;            /* bytes of old objects, as the GC counts them */
static struct object young[MAX_OBJECTS], old[MAX_OBJECTS];
static int young_count, old_count, state;
static struct sampler sampler;
static int has_sampler;

int64_t heap_old_bytes(void)
{
    return heap;
}

static void new_object(uint64_t *at, int64_t size, char fate, char *memory,
                       int64_t key, int part, int type)
{
    struct object object = { at, size, fate, memory, key, 0, part, 0, 0 };

    CHECK(young_count < MAX_OBJECTS && size >= 16 && size % 8 == 0);
    at[0] = fate == 'x' ? JUNK : HEADER | (strchr("nN", fate) ? PINNED : 0) |
                                 (strchr("tTN", fate) ? TEXT : 0);
    at[1] = (uint64_t)type << 32 | (uint64_t)size;
    young[young_count++] = object;
}

__thread __attribute__((tls_model("initial-exec"))) int raw_memory_gc_depth;
static int keeps_memory;

void raw_memory_free(void *memory)
{
    if (!keeps_memory)
        free(memory);
}

/* Call objects_free() outside of the GC, as C code of another thread may. */
static void free_outside_of_gc(void *memory)
{
    keeps_memory = 1;
    objects_free(memory);
    keeps_memory = 0;
}

static void gc_free(char *memory)
{
    if (free_is_ours) {
        raw_memory_gc_depth++;
        objects_free(memory);
        raw_memory_gc_depth--;
    }
    else
        free(memory);
}

static void promote(struct object *object)
{
    uint64_t *copy = object->at;
    int i;

    /* Only a call of free() by the GC may end an object. */
    if (free_is_ours && object->memory != NULL)
        free_outside_of_gc(object->memory);
    if (object->memory == NULL) {
        copy = calloc(1, (size_t)object->size);
        memcpy(copy, object->at, (size_t)object->size);
        object->at[0] = (uint64_t)-42;
        object->at[1] = (uint64_t)(uintptr_t)copy;
        object->memory = (char *)copy;
    }
    /* an object that becomes old during the sweep is not swept */
    if (state != SWEEPING)
        copy[0] |= VISITED;
    object->is_new = 1;
    object->at = copy;
    object->which = 0;
    for (i = 0; i < old_count; i++)
        object->which += old[i].key == object->key;
    CHECK(old_count < MAX_OBJECTS);
    old[old_count++] = *object;
}

/* The program continues, and overwrites the nursery, except for pinned objects. */
static void overwrite(void)
{
    int i;
    char *next = arena;

    for (i = 0; i < young_count; i++) {
        char *at = (char *)young[i].at;

        CHECK(at >= next);
        memset(next, 0xdd, (size_t)(at - next));
        next = at + young[i].size;
    }
    memset(next, 0xdd, (size_t)(arena + NURSERY - next));
    nursery_free = next;
}

static void minor(int seen)
{
    int i, pinned = 0;
    char *unrelated = malloc(64);

    nursery.collections++;
    if (seen)
        objects_before_collection();
    else
        nursery.surprises++;
    gc_free(unrelated);
    for (i = 0; i < young_count; i++)
        if (young[i].fate == 'p' || young[i].fate == 'T')
            promote(&young[i]);
        else if (young[i].memory != NULL)
            gc_free(young[i].memory);
        else if (young[i].at[0] & PINNED)
            young[pinned++] = young[i];
    young_count = pinned;
    if (seen)
        objects_after_collection();
    CHECK(!free_is_ours && !has_lock);
    overwrite();
}

static struct object *find_young(int64_t key, int part)
{
    int i;

    for (i = 0; i < young_count; i++)
        if (young[i].key == key && young[i].part == part)
            return &young[i];
    failed("a young object of this key", __LINE__);
    return NULL;
}

static void unpin(int64_t key, int part, char fate)
{
    struct object *object = find_young(key, part);

    object->at[0] &= ~PINNED;
    object->fate = fate;
}

static void shrink(int64_t key, int64_t size)
{
    struct object *object = find_young(key, 0);

    CHECK((object->at[0] & TEXT) != 0 && size < object->size);
    object->at[1] = (object->at[1] >> 32 << 32) | (uint64_t)size;
    object->size = size;
}

static void unmark(int64_t key, int which)
{
    int i;

    for (i = 0; i < old_count; i++)
        if (old[i].key == key && old[i].which == which) {
            old[i].at[0] &= ~VISITED;
            old[i].is_new = 0;
        }
}

/* The objects that a snapshot has copied */
static struct hook_object copied[16];
static size_t copied_count;

static void copy(void)
{
    copied_count = objects_count();
    CHECK(copied_count <= sizeof copied / sizeof *copied);
    objects_copy_all(copied);
}

static int is_garbage(size_t number, const void *key)
{
    return copied[number].key == *(const int64_t *)key;
}

static void examined(int64_t key, int64_t time)
{
    objects_examined(copied, copied_count, is_garbage, &key, time);
}

static void drop(int64_t key, int part)
{
    int i;

    for (i = 0; i < old_count; i++)
        if (old[i].key == key && old[i].part == part)
            old[i].is_dropped = 1;
}

static void mark(void)
{
    int i;

    for (i = 0; i < old_count; i++) {
        old[i].at[0] &= ~VISITED;
        if (!old[i].is_dropped)
            old[i].at[0] |= VISITED;
        old[i].is_new = 0;
    }
}

static void sweep(void)
{
    int i, kept = 0;

    for (i = 0; i < old_count; i++)
        if (old[i].is_new || old[i].at[0] & VISITED)
            old[kept++] = old[i];
        else
            free(old[i].memory);
    old_count = kept;
}

/* ____________________________________________________________ */

/* Parse an object of a batch.  Returns the number of parsed characters, or 0 at the end. */
static int object_of(const char *text, int64_t *size, char *fate, int *type)
{
    int used, more = 0;

    *type = 0;
    if (sscanf(text, " %" SCNd64 "%c%n", size, fate, &used) != 2)
        return 0;
    if (sscanf(text + used, ":%d%n", type, &more) != 1)
        more = 0;
    return used + more;
}

/* Return whether the sampler samples a batch.  'sample' gets the offset of the sampled byte
   and the interval. */
static int is_sampled(int64_t key, struct nursery_sample *sample)
{
    sample->at = sampler.gap;
    sample->interval = sampler.interval;
    if (!has_sampler || !sampler_object(&sampler, sample->size))
        return 0;
    printf("sample %" PRId64 " %" PRId64 " %" PRId64 "\n", key, sample->size,
           sample->interval);
    return 1;
}

/* Allocate a batch.  With 'interval' 0, the sampler decides whether to sample the batch. */
static void piece(int64_t key, int64_t at, int64_t interval, const char *rest)
{
    struct nursery_sample sample = { nursery_free, 0, at, interval,
                                     NURSERY_SMALL };
    int64_t size;
    int used, type, part = 0;
    char fate;
    const char *next;

    for (next = rest; (used = object_of(next, &size, &fate, &type)) > 0;
         next += used)
        sample.size += size;
    CHECK(at < sample.size && nursery_free + sample.size <= arena + NURSERY);
    if (interval != 0 || is_sampled(key, &sample))
        objects_sampled(key, &sample);
    for (next = rest; (used = object_of(next, &size, &fate, &type)) > 0;
         next += used, nursery_free += size)
        if (fate != '-')
            new_object((uint64_t *)nursery_free, size, fate, NULL, key, part++,
                       type);
}

static void large(int64_t key, int64_t size, int type, char fate, int cards,
                  int is_old, int is_sample)
{
    char *memory = calloc(1, (size_t)(cards + size));
    struct nursery_sample sample = { memory + cards, size, 0, 1,
                                     is_old ? NURSERY_OLD : NURSERY_LARGE };

    new_object((uint64_t *)(memory + cards), size, fate, memory, key, 0, type);
    if (cards > 0)
        *(uint64_t *)(memory + cards) |= CARDS;
    if (is_sample || is_sampled(key, &sample))
        objects_sampled(key, &sample);
}

/* Run a line about the sampler ("sampling", "rate", "allocate...").  Returns 0 if the line
   is of another kind. */
static int sampled_line(const char *text)
{
    int64_t n[4];
    int used, type, cards;
    char fate;

    if (sscanf(text, "sampling %" SCNd64 " %" SCNu64 " %" SCNd64 " %" SCNd64, n,
               (uint64_t *)n + 1, n + 2, n + 3) == 4) {
        CHECK(objects_begin((uint64_t)n[1], (int)n[2], (int)n[3]) == 0);
        sampler_start(&sampler, n[0], (uint64_t)n[1], (int)n[2]);
        has_sampler = 1;
        nursery.surprises = 0;
    }
    else if (sscanf(text, "rate %" SCNd64, n) == 1)
        sampler_set_interval(&sampler, n[0]);
    else if (sscanf(text, "allocate %" SCNd64 "%n", n, &used) == 1)
        piece(n[0], 0, 0, text + used);
    else if (sscanf(text, "allocate-large %" SCNd64 " %" SCNd64 " %d %c %d", n,
                    n + 1, &type, &fate, &cards) == 5)
        large(n[0], n[1], type, fate, cards, 0, 0);
    else if (sscanf(text, "allocate-old %" SCNd64 " %" SCNd64 " %d", n, n + 1,
                    &type) == 3)
        large(n[0], n[1], type, 'p', 0, 1, 0);
    else
        return 0;
    return 1;
}

static void line(const char *text)
{
    int64_t n[3];
    int used, cards;
    char fate;

    if (sampled_line(text))
        return;

    if (sscanf(text, "begin %" SCNd64 " %" SCNd64 " %" SCNd64, n, n + 1,
               n + 2) == 3)
        CHECK(objects_begin((uint64_t)n[0], (int)n[1], (int)n[2]) == 0);
    else if (sscanf(text, "piece %" SCNd64 " %" SCNd64 " %" SCNd64 "%n", n,
                    n + 1, n + 2, &used) == 3)
        piece(n[0], n[1], n[2], text + used);
    else if (sscanf(text, "large %" SCNd64 " %" SCNd64 " %c %d", n, n + 1,
                    &fate, &cards) == 4)
        large(n[0], n[1], 0, fate, cards, 0, 1);
    else if (sscanf(text, "old %" SCNd64 " %" SCNd64, n, n + 1) == 2)
        large(n[0], n[1], 0, 'p', 0, 1, 1);
    else if (sscanf(text, "unmark %" SCNd64 " %" SCNd64, n, n + 1) == 2)
        unmark(n[0], (int)n[1]);
    else if (strcmp(text, "copy\n") == 0)
        copy();
    else if (sscanf(text, "examined %" SCNd64 " %" SCNd64, n, n + 1) == 2)
        examined(n[0], n[1]);
    else if (strcmp(text, "inherit\n") == 0)
        objects_inherit();
    else if (sscanf(text, "drop %" SCNd64 " %d", n, &cards) == 2)
        drop(n[0], cards);
    else if (sscanf(text, "unpin %" SCNd64 " %d %c", n, &cards, &fate) == 3)
        unpin(n[0], cards, fate);
    else if (sscanf(text, "shrink %" SCNd64 " %" SCNd64, n, n + 1) == 2)
        shrink(n[0], n[1]);
    else if (strcmp(text, "mark\n") == 0)
        mark();
    else if (sscanf(text, "heap %" SCNd64, &heap) == 1)
        tells_swept = 1;
    else if (sscanf(text, "state %d", &cards) == 1)
        state = cards;
    else if (strcmp(text, "sweep\n") == 0)
        sweep();
    else if (strcmp(text, "no-memory\n") == 0)
        has_no_memory = 1;
    else if (strcmp(text, "minor\n") == 0)
        minor(1);
    else if (strcmp(text, "unseen\n") == 0)
        minor(0);
    else if (strcmp(text, "forget\n") == 0)
        has_profile = 0;
    else if (strcmp(text, "end\n") == 0) {
        objects_tell_waiting();
        objects_end();
        has_sampler = 0;
    }
    else {
        fprintf(stderr, "not understood: %s", text);
        exit(2);
    }
}

int main(void)
{
    struct hook_place place = { 0 };
    char *text = NULL;
    size_t size = 0;
    int i;

    arena = nursery_free = malloc(NURSERY);
    place.gc = (uintptr_t)&state - 8;
    place.gc_state = 8;
    place.flag_visited = VISITED;
    place.flag_pinned = PINNED;
    place.forwarded = -42;
    place.slot[DIVERT_FREE] = 8;
    objects_prepare(&place);
    CHECK(hook_knows_objects());
    while (getline(&text, &size, stdin) > 0)
        line(text);
    objects_end();
    free(text);
    free(arena);
    for (i = 0; i < old_count; i++)
        free(old[i].memory);
    for (i = 0; i < young_count; i++)
        free(young[i].memory);
    return 0;
}
