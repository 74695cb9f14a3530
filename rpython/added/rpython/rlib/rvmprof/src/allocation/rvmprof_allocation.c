#include "rvmprof_allocation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "children.h"
#include "code_names.h"
#include "figures.h"
#include "file_sink.h"
#include "labels.h"
#include "tracked.h"
#include "native_frames.h"
#include "profile_log.h"
#include "recorder.h"
#include "stack_nodes.h"
#include "type_names.h"
#include "vmp_stack.h"
#include "vmprof_common.h"
#include "vmprof_memory.h"
#include "vmprof_mt.h"
#include "vmprof_unix.h"

/* in vmp_stack.c, but not in its header */
int vmp_walk_and_record_python_stack_only(PY_STACK_FRAME_T *frame,
                                          void **result, int max_depth,
                                          int depth, intptr_t pc);

/* Limit of native frames in a sample, which leaves room for interpreted frames */
#define MAX_NATIVE_FRAMES   100

/* The features of this engine (PROFILE.rst); the other settings in the profile say which
   of them the run uses */
#define CAPABILITIES        "labels,lifetimes,limits,marks,names," \
                            "native-frames,resident-memory,rotation," \
                            "time-samples,types"

#define MARKER_NAME         '\x02'
#define NAME_HEAD           (1 + 2 * sizeof(int64_t))

/* The layout of rgc.ALLOCATION_TOTALS, where the fields are described */
struct allocation_totals {
    intptr_t interval;
    intptr_t allocated;
    intptr_t collections;
    intptr_t marking;
    intptr_t memory;
    intptr_t heap;
    intptr_t obtained;
    intptr_t nursery;
};

static struct file_sink files[2], *file = files;        /* the present segment's file; the
                                   other element is for the next segment */
static char common[1024];               /* settings of all segments of a profile */
static struct allocation_totals *gc_totals;     /* NULL until the GC samples */
static volatile int is_open;            /* whether there is a profile */
static int with_memory;                 /* whether samples have the resident memory */
static int takes_time_samples = 1;
static const void *innermost_frame;     /* native frame of the function that takes the
                                   present sample; guarded by the GIL */
static int with_lifetimes;              /* whether outcomes are recorded */
static __thread __attribute__((tls_model("initial-exec")))
int is_ignored;                 /* whether this thread's allocations are ignored */
static int64_t collection_start, majors;        /* start of the last minor collection, in
                                                   ns; number of major collections that
                                                   have marked */
static int64_t marking_began;   /* start of the first minor collection during the present
                                   marking, in ns, or -1 */
static int is_swept;            /* whether the size of the heap after the last major
                                   collection was recorded */
static int64_t heap_at_begin;   /* bytes of old objects after the first minor collection,
                                   or -1 if they are unknown */
static intptr_t shrunk_to;      /* present size in bytes of the next reported object, or 0
                                   if the object was not shrunk */
/* the function that returns the number of an object's class, or NULL */
static intptr_t (*class_of)(void *object);

static void get_totals(struct profile_totals *totals)
{
    if (gc_totals != NULL) {
        totals->allocated = gc_totals->allocated;
        totals->collections = gc_totals->collections;
    }
}

/* Read the last sizes of the heap that the GC has stored.  Any thread may call this.
   Returns 0 if they are unknown. */
static int read_heap(struct figures_heap *heap)
{
    const struct allocation_totals *totals =
        __atomic_load_n(&gc_totals, __ATOMIC_ACQUIRE);

    if (totals == NULL)
        return 0;
    heap->used = __atomic_load_n(&totals->heap, __ATOMIC_RELAXED);
    heap->has = __atomic_load_n(&totals->obtained, __ATOMIC_RELAXED);
    heap->nursery = __atomic_load_n(&totals->nursery, __ATOMIC_RELAXED);
    return heap->used != 0;
}

/* ____________________________________________________________ */
/* samples */

static const struct stack_node *nodes(PY_STACK_FRAME_T *stack)
{
    return (const struct stack_node *)stack;    /* the same fields */
}

/* Walk this thread's stack, and pass it to the recorder as a stack sample of vmprof. */
static void record_stack(PY_STACK_FRAME_T *stack)
{
    static struct profbuf_s buffer;     /* guarded by the recorder's lock */
    struct prof_stacktrace_s *st = (struct prof_stacktrace_s *)buffer.data;
    long memory;
    int depth = 0;

    st->marker = MARKER_STACKTRACE;
    st->count = 1;
    if (vmp_native_enabled())
        depth = native_frames(st->stack, MAX_NATIVE_FRAMES, innermost_frame);
    depth = vmp_walk_and_record_python_stack_only(
        stack, st->stack, MAX_STACK_DEPTH - 2, depth, 0);
    if (depth == 0)
        return;
    st->depth = depth;
    st->stack[depth++] = NULL;          /* the thread */
    memory = with_memory ? get_current_proc_rss() : -1;
    if (memory >= 0)
        st->stack[depth++] = (void *)memory;
    (void)recorder_stack(&st->marker, (size_t)((char *)&st->stack[depth] -
                                              &st->marker));
}

/* Walk the stack of the present sample; called by recorder_allocation(). */
static void walk(void)
{
    PY_STACK_FRAME_T *stack = get_vmprof_stack();

    /* write the names of functions now, in case that the process is killed */
    flush_codes();
    if (vmprof_enter_signal() == 0 && stack != NULL)
        record_stack(stack);
    vmprof_exit_signal();
}

/* Return a key for this thread's stack (stack_nodes.h), which is valid until the table of
   the JIT's code changes.  Returns 0 if samples have native frames, or if the table is
   changing now. */
static uint64_t stack_key(void)
{
    long times_ignored = vmprof_times_ignored();

    if (times_ignored < 0 || vmp_native_enabled())
        return 0;
    return stack_nodes_key(nodes(get_vmprof_stack()), (uint64_t)times_ignored);
}

intptr_t vmprof_allocation_sampled(intptr_t size, void *address)
{
    intptr_t interval;
    int64_t key;

    (void)address;              /* the object does not exist yet */
    if (!is_open) {
        children_count();
        return -1;
    }
    if (gc_totals == NULL || is_ignored)
        return 0;
    innermost_frame = __builtin_frame_address(0);
    interval = gc_totals->interval;
    key = recorder_allocation(size, interval, stack_key(), walk);
    if (key != 0) {
        gc_totals->interval = recorder_next_interval();
        if (with_lifetimes)
            tracked_sampled(key, recorder_sampled_stack(), size,
                             interval);
    }
    return key;
}

/* ____________________________________________________________ */
/* facts */

static enum outcome outcome(intptr_t what)
{
    if (!with_lifetimes)
        return OUTCOME_NOT_KNOWN;
    return what == GC_DIED ? OUTCOME_DIED :
           what == GC_PROMOTED ? OUTCOME_PROMOTED : OUTCOME_NOT_KNOWN;
}

/* Return the bytes of all old objects at the beginning of this minor collection, or -1 if
   they are unknown because the GC sweeps. */
static int64_t old_bytes(void)
{
    return gc_totals->heap != 0 ? gc_totals->heap - gc_totals->nursery : -1;
}

/* Begin the facts that the GC has found at one moment.  Returns 0 if there is no
   profile. */
static int begin_facts(void)
{
    if (!recorder_begin_facts(gc_totals->collections))
        return 0;
    if (heap_at_begin < 0 && gc_totals->collections > 1)
        heap_at_begin = old_bytes();
    if (!is_swept && with_lifetimes && old_bytes() >= 0) {
        is_swept = 1;
        tracked_swept(old_bytes(), heap_at_begin);
    }
    return 1;
}

/* Note the beginning of a minor collection.  Returns 0 if there is no profile. */
static int collection_started(void)
{
    if (!is_open || gc_totals == NULL)
        return 0;
    collection_start = recorder_now();
    if (!gc_totals->marking)
        marking_began = -1;
    else if (marking_began < 0)
        marking_began = collection_start;
    figures_heap_seen();
    return 1;
}

/* Return an object's type and class in one word.  The GC passes this word to young(), which
   separates them again. */
static intptr_t type_and_class(intptr_t type, void *object)
{
    intptr_t its_class = class_of != NULL && object != NULL ? class_of(object) : 0;

    return (its_class << 32) | (uint32_t)type;
}

/* Record the outcome of a young object.  'note' is the result of type_and_class().
   Returns 1 if the GC must report later facts about the object. */
static int young(intptr_t what, intptr_t key, intptr_t which, intptr_t note,
                 intptr_t size, void *address)
{
    intptr_t live_size = shrunk_to, type = (int32_t)note, its_class = note >> 32;

    shrunk_to = 0;
    /* Only an object that fills its sample (size 0) can be pinned: the JIT pins no object
       of a batched allocation. */
    if (what == GC_PINNED && with_lifetimes && size == 0 && tracked_pinned(key))
        return 1;
    recorder_young(key, outcome(what), type_names_number(type, its_class),
                   size, with_lifetimes ? live_size : 0);
    if (!with_lifetimes || what != GC_PROMOTED) {
        if (what != GC_DIED)
            tracked_not_known(key, size);
        return 0;
    }
    if (tracked_promoted(key, which, type, its_class, size, live_size,
                         (intptr_t)address))
        return 1;
    recorder_lost(key, (int)which);
    return 0;
}

intptr_t vmprof_allocation_fact(intptr_t what, intptr_t key, intptr_t which,
                                intptr_t value, intptr_t size,
                                void *address)
{
    switch (what) {
    case GC_STARTED:
        return collection_started();
    case GC_OBJECT:
        return type_and_class(value, address);
    case GC_FOUND:
        break;
    case GC_BEGIN:
        return is_open && gc_totals != NULL && begin_facts();
    case GC_END:
        tracked_end();
        recorder_end_facts();
        break;
    case GC_ENDED:
        tracked_young_ended();
        recorder_collected(collection_start, gc_totals->allocated);
        break;
    case GC_MARKED:
        figures_heap_seen();    /* a minor collection came right before the marking ended */
        is_swept = 0;
        tracked_marked();
        recorder_marked(++majors, marking_began);
        marking_began = -1;
        break;
    case GC_FREED:
        tracked_freed(key, which);
        recorder_freed(key, (int)which);
        break;
    case GC_SHRUNK:
        shrunk_to = size;
        break;
    case GC_LOST:
        tracked_lost();
        recorder_lost(key, (int)which);
        break;
    default:
        return young(what, key, which, value, size, address);
    }
    return 0;
}

void vmprof_allocation_classes(intptr_t (*new_class_of)(void *object))
{
    class_of = new_class_of;
}

void vmprof_allocation_class_name(intptr_t number, char *name, intptr_t size)
{
    if (is_open && gc_totals != NULL &&
        recorder_begin_facts(gc_totals->collections)) {
        type_names_class(number, name, (size_t)size);
        recorder_end_facts();
    }
}

void vmprof_allocation_mark(char *name)
{
    if (is_open)
        (void)recorder_mark(name);
}

intptr_t vmprof_allocation_define_label(char *text)
{
    return labels_define(text);
}

void vmprof_allocation_label(intptr_t number)
{
    labels_set((int)number);
}

void vmprof_allocation_thread_name(intptr_t thread, char *name)
{
    if (is_open)
        recorder_named(thread, name);
}

/* ____________________________________________________________ */
/* CPU samples, and vmprof's other records */

int vmprof_begin_time_sample(void)
{
    return !is_open || recorder_begin_time_sample();
}

void vmprof_end_time_sample(void)
{
    if (is_open)
        recorder_end_time_sample();
}

ssize_t vmprof_allocation_write(int fd, const void *records, size_t size)
{
    int had_lock = recorder_has_lock();

    if (fd < 0)
        return (ssize_t)size;       /* a forked child has no profile */
    if (!is_open)
        return write(fd, records, size);
    if (!had_lock)
        recorder_lock();
    if (!recorder_stack(records, size)) {
        /* vmprof writes its first records in parts, and a part may begin like a name */
        if (size > NAME_HEAD && *(const char *)records == MARKER_NAME)
            profile_log_names(records, size);
        else {
            profile_log_bytes(records, size);
            code_names_keep_head(records, size);
        }
    }
    if (!had_lock)
        recorder_unlock();
    return (ssize_t)size;
}

/* ____________________________________________________________ */
/* open and close */

/* Return 0, or -1 and set errno if 'error' is not 0. */
static int result(int error)
{
    if (error == 0)
        return 0;
    errno = error;
    return -1;
}

int vmprof_takes_time_samples(void)
{
    return takes_time_samples;
}

int vmprof_allocation_open(int fd, int take_time_samples, int memory)
{
    int error = file_sink_open(file, fd);

    if (error == 0) {
        code_names_begin();
        recorder_open(&file->sink, get_totals);
        figures_heap_by(read_heap);
        gc_totals = NULL;
        takes_time_samples = take_time_samples;
        with_memory = memory;
        is_open = 1;
    }
    return result(error);
}

void vmprof_allocation_limit(intptr_t per_second, intptr_t share)
{
    recorder_limit(per_second, share);
}

void vmprof_allocation_type_names(char *text, intptr_t size)
{
    type_names_set(text, (size_t)size);
}

/* Write the settings of a segment to 'text': 'common', and its own settings 'own'.  Returns
   0, or ENAMETOOLONG. */
static int make_settings(char *text, size_t size, const char *own)
{
    int length = snprintf(text, size, "%s%s%s", common, *own ? ";" : "", own);

    return length < 0 || (size_t)length >= size ? ENAMETOOLONG : 0;
}

int vmprof_allocation_start(char *settings, char *own, int lifetimes,
                            int in_memory, int fixed_gaps)
{
    char text[3072], clock[32];
    size_t used;
    int error;

    snprintf(common, sizeof common, "%s;capabilities=%s;facts=%s", settings,
             CAPABILITIES, lifetimes ? "types,lifetimes" : "types");
    snprintf(clock, sizeof clock, ";clock=%lld",
             (long long)profile_log_started());
    error = make_settings(text, sizeof text - sizeof clock, own);
    if (error != 0)
        return result(error);
    used = strlen(text);
    memcpy(text + used, clock, strlen(clock) + 1);
    with_lifetimes = lifetimes;
    majors = 0;
    type_names_begin();
    tracked_clear(fixed_gaps);
    labels_begin();
    recorder_expect_outcomes(1);
    flush_codes();
    code_names_enabled();
    if (strstr(own, "parent=") != NULL)
        children_followed();
    error = recorder_start(text);
    if (in_memory) {
        with_lifetimes = 1;
        recorder_without_samples();
    }
    return result(error);
}

/* Record the live tracked objects in the segment that has just begun, because later facts
   about them will be in this segment. */
static void begin_part(void)
{
    type_names_begin_next();
    if (recorder_begin_facts(gc_totals->collections)) {
        tracked_inherit();
        recorder_end_facts();
    }
}

/* Return the size in bytes of the GC's, the engine's and the recorder's tables.  For the
   first two, this is the maximum until now. */
static int64_t bookkeeping(void)
{
    return tracked_memory() + (int64_t)recorder_memory() + (gc_totals != NULL ? gc_totals->memory : 0);
}

/* Record the size of the tables in the profile.  Called before the profile ends. */
static void note_bookkeeping(void)
{
    char text[40];

    if (bookkeeping() == 0)
        return;
    (void)snprintf(text, sizeof text, "bookkeeping=%" PRId64, bookkeeping());
    recorder_note(text);
}

int vmprof_allocation_rotate(int fd, char *own)
{
    struct file_sink *other = file == files ? files + 1 : files;
    struct profile_log_next next;
    char text[3072], trailer[CODE_NAMES_TRAILER];
    int error = is_open && gc_totals != NULL ? 0 : EINVAL;

    if (error == 0)
        error = make_settings(text, sizeof text, own);
    if (error == 0)
        error = file_sink_open(other, fd);
    if (error != 0)
        return error;
    memset(&next, 0, sizeof next);
    next.sink = &other->sink;
    next.settings = text;
    note_bookkeeping();
    recorder_lock();
    flush_codes();
    next.head = code_names_head(&next.head_size);
    next.first_key = recorder_next_key();
    error = profile_log_begin_next(&next, recorder_now());
    if (error == 0) {
        code_names_trailer(trailer);
        next.trailer = trailer;
        next.trailer_size = sizeof trailer;
        recorder_rotate(&next);
        file = other;
        vmp_set_profile_fileno(fd);
    }
    recorder_unlock();
    if (error != 0)
        return error;
    begin_part();
    return -next.ended;
}

int64_t *vmprof_allocation_alive(int forget)
{
    int64_t *copy;

    if (!is_open || gc_totals == NULL ||
        !recorder_begin_facts(gc_totals->collections))
        return calloc(1, sizeof *copy);
    copy = tracked_copy();
    if (forget)
        tracked_forget();
    flush_codes();              /* with the lock */
    recorder_end_facts();
    (void)recorder_flush();
    return copy;
}

void vmprof_allocation_free(int64_t *copy)
{
    free(copy);
}

void vmprof_allocation_traced(double traced[2], int reset_peak)
{
    tracked_traced(&traced[0], &traced[1]);
    if (reset_peak)
        tracked_reset_peak();
}

int vmprof_allocation_ignore(int ignored)
{
    int before = is_ignored;

    is_ignored = ignored;
    return before;
}

void vmprof_allocation_totals(void *totals)
{
    __atomic_store_n(&gc_totals, totals, __ATOMIC_RELEASE);
    is_swept = 1;
    heap_at_begin = marking_began = -1;
}

void vmprof_allocation_statistics(intptr_t counts[8])
{
    struct profile_totals totals = { 0 };

    get_totals(&totals);
    counts[0] = totals.allocated;
    counts[1] = totals.collections;
    counts[2] = recorder_counts.samples;
    counts[3] = recorder_counts.lost;
    counts[4] = recorder_counts.time_samples;
    counts[5] = recorder_counts.dropped;
    counts[6] = bookkeeping();
    counts[7] = tracked_missing();
}

void vmprof_allocation_stop(void)
{
    if (!is_open)
        return;
    note_bookkeeping();
    recorder_stop();
}

int vmprof_allocation_close(void)
{
    int error;

    takes_time_samples = 1;
    if (!is_open)
        return 0;
    is_open = 0;
    error = recorder_close();
    code_names_end();
    return result(error);
}

void vmprof_allocation_forget(void)
{
    (void)recorder_forget();
    is_open = 0;
}
