/* Drives sampler.c and nursery.c with a model of a garbage collector (gc_model.h).
 *
 * stdin is a trace, a list of lines.  The first lines describe the GC:
 *
 *   nursery BYTES     the nursery's size
 *   rotate            a minor collection without pinned objects moves the nursery
 *   tiny BYTES        collect_and_reserve() never leaves more free bytes than BYTES
 *   pins N            number of objects that may be pinned at the same time
 *
 * The next lines are the program's actions:
 *
 *   small SIZE COUNT  allocate objects in the nursery
 *   large SIZE COLLECTS
 *                     external_malloc(), which collects first if COLLECTS
 *   fail SIZE COLLECTS
 *                     the same as "large", but the call raises MemoryError at its end
 *   collect           a minor collection that the program requests
 *   pressure          raw_malloc_memory_pressure()
 *   pin N             pin the N-th last small object, if possible
 *   unpin N           unpin the N-th pinned object
 *   finalizers N SIZE1 .. SIZEN
 *                     the next collection with major progress runs finalizers that allocate
 *                     these objects; 0 is a memory pressure, and a negative number is a
 *                     large object
 *   steps N           the same collection does N additional minor collections
 *   nomemory          the same collection raises MemoryError in collect_and_reserve()
 *
 * These lines are the engine's actions:
 *
 *   start INTERVAL SEED FIXED FOLLOWS
 *                     if FOLLOWS, each sample changes the interval
 *   rate INTERVAL     set the interval
 *   every BYTES       a sample point that is BYTES or more after the last collection starts
 *                     a collection
 *   stop
 *   soon              make the nursery appear full to the next small allocation
 *   abandon           stop at the next call, as in a forked child
 *   unhook            restore the GC's three functions
 *   unseen            a minor collection that bypasses the hook
 *
 * The trace is run twice, first without and then with the engine's lines.  Each run prints
 * its events when they happen.  Only the second run prints the samples ("sample NUMBER SIZE
 * INTERVAL") and the totals.  A failed check ends the program with exit code 3.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gc/nursery.h"

#define MAX_LINES       100000
#define MARKER          12321           /* an errno that no function sets */

static int line_number;

#define CHECK(condition) \
    do { if (!(condition)) failed(#condition, __LINE__); } while (0)

static void failed(const char *what, int where)
{
    fflush(stdout);
    fprintf(stderr, "nursery_harness.c:%d: line %d of the trace: not so: %s\n",
            where, line_number, what);
    exit(3);
}

static void refuse(const char *why)
{
    fprintf(stderr, "line %d of the trace: %s\n", line_number, why);
    exit(2);
}

#include "gc_model.h"

/* ____________________________________________________________ */
/* The program */

/* the sample to print; 'size' is 0 without a sample */
static struct nursery_sample pending;
static int follows;

static int64_t take_sample(const struct nursery_sample *sample)
{
    CHECK(with_engine && sample->size > 0 && pending.size == 0);
    CHECK(depth_in_reserve == 0);
    if (abandoned)
        /* the recorder ignores samples in a forked child, too */
        return sample->interval;
    pending = *sample;
    /* the same formula as oracle.next_interval() */
    return follows ? (int64_t)(((uint64_t)sample->interval % 10007 * 5 +
                                (uint64_t)sample->size) % 10007 + 1)
                   : sample->interval;
}

static int collecting;          /* whether a hooked minor collection runs */

static void before_collection(void)
{
    CHECK(with_engine && !collecting && pending.size == 0);
    CHECK(gc.nursery_top == gc.true_top);
    collecting = 1;
}

static void after_collection(void)
{
    CHECK(with_engine && collecting);
    collecting = 0;
}

/* Print a pending sample, and check that it belongs to the object at 'start'. */
static void print_sample(int64_t number, const char *start, int is_large)
{
    if (pending.size != 0) {
        CHECK(pending.start == start);
        CHECK(pending.at >= 0 && pending.at < pending.size);
        CHECK(pending.place == (is_large ? NURSERY_LARGE : NURSERY_SMALL));
        printf("sample %" PRId64 " %" PRId64 " %" PRId64 "\n", number,
               pending.size, pending.interval);
    }
    pending.size = 0;
}

static int64_t new_number(void)
{
    CHECK(objects < max_objects);
    small_object[objects] = NULL;
    return objects++;
}

/* Allocate as the interpreter's code and the JIT's code do: with the inlined check, and a
   call of collect_and_reserve() if the nursery seems full. */
static void allocate(intptr_t size)
{
    char *result = gc.nursery_free;
    int slow = 0, real = 0;
    int64_t number;
    struct object head;

    CHECK(result != NULL);
    gc.nursery_free = result + size;
    if (gc.nursery_free > gc.nursery_top) {
        slow = 1;
        real = gc.nursery_free > gc.true_top || !ALIGNED((uintptr_t)result) ||
               nursery.wants_collection;
        result = collect_and_reserve(&gc, size);
        if (result == NULL) {
            CHECK(real);
            printf("MemoryError\n");
            return;
        }
        CHECK(gc.nursery_free == result + size || (tiny > 0 && real));
    }
    CHECK(result + size <= gc.true_top);
    occupy(result, size);
    number = new_number();
    small_object[number] = result;
    head.number = (uint64_t)number;
    head.size = (uint64_t)size;
    memcpy(result, &head, sizeof head);
    printf("%s %" PRId64 " %" PRIdPTR " %" PRIdPTR "\n",
           depth_in_reserve > 0 ? "hidden" : "small", number, size,
           (intptr_t)(result - gc.nursery));
    CHECK(slow || pending.size == 0);
    if (slow && with_engine && nursery.phase == NURSERY_RUNNING)
        /* the slow path has a reason: a full nursery, a sample, or the end in a child */
        CHECK(real || pending.size != 0 || abandoned);
    print_sample(number, result, 0);
}

static int64_t large_size(uintptr_t type, intptr_t length)
{
    return (int64_t)type + 8 * (int64_t)length;
}

static void allocate_large(int64_t size)
{
    void *p = external_malloc(&gc, 24, (intptr_t)(size - 24) / 8, 1);

    if (p == NULL) {
        CHECK(pending.size == 0);
        printf("MemoryError\n");
        return;
    }
    printf("%s %" PRId64 " %" PRId64 "\n",
           depth_in_reserve > 0 ? "hidden" : "large", objects, size);
    print_sample(new_number(), elsewhere, 1);
}

static int is_pinned(const char *at)
{
    int i;

    for (i = 0; i < gc.pinned_count; i++)
        if (gc.pinned[i].at == at)
            return 1;
    return 0;
}

static void pin(int64_t number)
{
    struct object head;
    char *at;

    if (number < 0 || gc.pinned_count == max_pinned)
        return;
    at = small_object[number];
    /* An object that is no longer in the nursery counts as dead, and cannot be pinned. */
    if (at == NULL || at < gc.nursery || at >= gc.nursery + nursery_size ||
        !taken[word_of(at)] || is_pinned(at))
        return;
    memcpy(&head, at, sizeof head);
    if (head.number != (uint64_t)number)
        return;
    gc.pinned[gc.pinned_count].at = at;
    gc.pinned[gc.pinned_count++].size = (intptr_t)head.size;
    printf("pinned %" PRId64 "\n", number);
}

static void unpin(int i)
{
    if (i < gc.pinned_count) {
        gc.pinned[i] = gc.pinned[--gc.pinned_count];
        printf("unpinned\n");
    }
}

/* ____________________________________________________________ */
/* The engine: the calls of the engine's Python code, in the same order */

static void run_pending_request(void)
{
    if (abandoned && !nursery.inside) {
        nursery_stop();
        abandoned = 0;
    }
}

static void *hooked_collect_and_reserve(void *self, intptr_t size)
{
    void *object = nursery_collect_and_reserve(self, size);

    run_pending_request();
    return object;
}

static void hooked_minor_collection(void *self)
{
    nursery_minor_collection(self);
    run_pending_request();
}

static void *hooked_external_malloc(void *self, uintptr_t type,
                                    intptr_t length, uintptr_t young)
{
    void *object = nursery_external_malloc(self, type, length, young);

    run_pending_request();
    return object;
}

static void hook(int on)
{
    hooked = on;
    collect_and_reserve = on ? hooked_collect_and_reserve
                             : gc_collect_and_reserve;
    minor_collection = on ? hooked_minor_collection : gc_minor_collection;
    external_malloc = on ? hooked_external_malloc : gc_external_malloc;
}

static void start(int64_t interval, uint64_t seed, int fixed)
{
    if (nursery.phase != NURSERY_OFF)
        refuse("it has been started before");
    nursery.free = &gc.nursery_free;
    nursery.top = &gc.nursery_top;
    nursery.original.collect_and_reserve = gc_collect_and_reserve;
    nursery.original.minor_collection = gc_minor_collection;
    nursery.original.external_malloc = gc_external_malloc;
    nursery.large_size = large_size;
    nursery.take_sample = take_sample;
    nursery.before_collection = before_collection;
    nursery.after_collection = after_collection;
    hook(1);
    nursery_start(interval, seed, fixed);
}

static void stop(int at_once)
{
    if (!hooked)
        refuse("it has not been started");
    if (nursery.phase == NURSERY_OFF)
        return;
    abandoned = 1;
    if (at_once)
        run_pending_request();
}

/* Make the next small allocation enter the slow path.  Without the engine, the function
   fills the nursery. */
static void collect_soon(void)
{
    if (with_engine && nursery.phase == NURSERY_RUNNING)
        nursery_collect_soon();
    else
        gc.nursery_free = gc.nursery_top;
}

static int engine_line(const char *line)
{
    int64_t interval;
    uint64_t seed;
    int fixed, changes = 0;

    if (sscanf(line, "start %" SCNd64 " %" SCNu64 " %d %d", &interval, &seed,
               &fixed, &changes) >= 3) {
        follows = changes;
        errno = MARKER;                 /* sscanf() may have set errno */
        if (with_engine)
            start(interval, seed, fixed);
    }
    else if (sscanf(line, "rate %" SCNd64, &interval) == 1) {
        if (with_engine && nursery.phase == NURSERY_OFF)
            refuse("it has not been started");
        if (with_engine) {
            nursery.new_interval = interval;
            nursery_update();
        }
    }
    else if (sscanf(line, "every %" SCNd64, &interval) == 1) {
        if (with_engine)
            nursery.collect_every = interval;
    }
    else if (strcmp(line, "stop\n") == 0 || strcmp(line, "abandon\n") == 0) {
        if (with_engine)
            stop(line[0] == 's');
    }
    else if (strcmp(line, "unhook\n") == 0) {
        if (with_engine && nursery.phase != NURSERY_OFF)
            refuse("it has not been stopped");
        if (with_engine)
            hook(0);
    }
    else
        return 0;
    fputs(line, stdout);
    return 1;
}

/* ____________________________________________________________ */
/* The trace */

static int setup_line(const char *line)
{
    if (sscanf(line, "nursery %" SCNdPTR, &nursery_size) == 1)
        return 1;
    if (sscanf(line, "tiny %" SCNdPTR, &tiny) == 1)
        return 1;
    if (sscanf(line, "pins %d", &max_pinned) == 1 && max_pinned <= MAX_PINNED)
        return 1;
    if (strcmp(line, "rotate\n") == 0) {
        rotate = 1;
        return 1;
    }
    return 0;
}

static int finalizers_line(const char *line)
{
    int i, used, count;

    if (sscanf(line, "finalizers %d%n", &count, &used) != 1)
        return 0;
    if (count < 0 || count > MAX_FINALIZERS)
        refuse("too many finalizers");
    for (i = 0; i < count; i++) {
        line += used;
        if (sscanf(line, " %" SCNdPTR "%n", &gc.finalizer[i], &used) != 1)
            refuse("a finalizer is missing");
    }
    gc.finalizer_count = count;
    return 1;
}

static void program_line(const char *line)
{
    intptr_t size;
    int64_t count;
    int n;

    if (sscanf(line, "small %" SCNdPTR " %" SCNd64, &size, &count) == 2) {
        if (size < (intptr_t)sizeof(struct object) || !ALIGNED(size))
            refuse("no size of an object");
        while (count-- > 0)
            allocate(size);
    }
    else if (sscanf(line, "large %" SCNdPTR " %d", &size, &n) == 2) {
        gc.external_collects = n;
        allocate_large(size);
    }
    else if (sscanf(line, "fail %" SCNdPTR " %d", &size, &n) == 2) {
        gc.external_collects = n;
        gc.external_fails = 1;
        allocate_large(size);
        gc.external_fails = 0;
    }
    else if (sscanf(line, "pin %d", &n) == 1)
        pin(objects - 1 - n);
    else if (sscanf(line, "unpin %d", &n) == 1)
        unpin(n);
    else if (sscanf(line, "steps %d", &n) == 1)
        gc.steps = n;
    else if (strcmp(line, "nomemory\n") == 0)
        gc.no_memory = 1;
    else if (strcmp(line, "collect\n") == 0)
        collect_with_progress();
    else if (strcmp(line, "pressure\n") == 0)
        memory_pressure();
    else if (strcmp(line, "soon\n") == 0)
        collect_soon();
    else if (strcmp(line, "unseen\n") == 0)
        unseen_collection();
    else
        refuse("not understood");
}

static void check_after_line(void)
{
    CHECK(errno == MARKER);
    CHECK(pending.size == 0 && !collecting);
    CHECK(gc.true_top >= gc.nursery &&
          gc.true_top <= gc.nursery + nursery_size);
    if (!hooked || nursery.phase == NURSERY_OFF)
        CHECK(gc.nursery_top == gc.true_top);
}

static void run_trace(char **line, int lines, int engine)
{
    int i;

    with_engine = engine;
    memset(&gc, 0, sizeof gc);
    memset(taken, 0, (size_t)nursery_size / 8);
    memset(arena[0], 0, (size_t)nursery_size);
    memset(arena[1], 0, (size_t)nursery_size);
    objects = 0;
    abandoned = 0;
    hook(0);
    gc.nursery = gc.nursery_free = arena[0];
    set_top(gc.nursery + nursery_size);
    printf("run %d\n", engine);
    for (i = 0; i < lines; i++) {
        line_number = i + 1;
        errno = MARKER;
        if (!setup_line(line[i]) && !engine_line(line[i]) &&
            !finalizers_line(line[i]))
            program_line(line[i]);
        check_after_line();
    }
    if (engine)
        printf("total %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %d\n",
               nursery.allocated, nursery.collections, nursery.pressures,
               nursery.surprises, (int)nursery.phase);
}

int main(void)
{
    static char *line[MAX_LINES];
    char *buffer = NULL;
    size_t size = 0;
    int lines = 0, i;

    max_objects = 1 << 22;
    while (getline(&buffer, &size, stdin) > 0) {
        if (lines == MAX_LINES)
            refuse("too many lines");
        (void)setup_line(buffer);
        line[lines++] = strdup(buffer);
    }
    free(buffer);
    if (nursery_size <= 0 || !ALIGNED(nursery_size))
        refuse("no nursery");
    arena[0] = malloc((size_t)nursery_size);
    arena[1] = malloc((size_t)nursery_size);
    taken = malloc((size_t)nursery_size / 8);
    small_object = malloc((size_t)max_objects * sizeof *small_object);
    run_trace(line, lines, 0);
    run_trace(line, lines, 1);
    for (i = 0; i < lines; i++)
        free(line[i]);
    free(arena[0]);
    free(arena[1]);
    free(taken);
    free(small_object);
    return 0;
}
