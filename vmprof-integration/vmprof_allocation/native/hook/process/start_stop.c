#define _GNU_SOURCE
#include "start_stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "child_settings.h"
#include "children.h"
#include "gc/nursery.h"
#include "gc/objects.h"
#include "hook.h"
#include "labels.h"
#include "malloc/raw_memory.h"
#include "patches/trampoline.h"
#include "recorder.h"
#include "run.h"
#include "snapshots/held_by.h"
#include "vmprof/signals.h"

/* index of external_malloc() in hook_place.entry */
#define ENTRY_EXTERNAL_MALLOC   2

/* The requests; see needs_safepoint(). */
enum { NOTHING, HOOK, UPDATE, UNHOOK, UNHOOK_SOON, ASK, ROTATE, PAUSE, END };

/* The pending request, which any thread may set. */
static volatile int request;
static struct {
    int64_t interval;
    uint64_t seed;
    int fixed;
    int facts;
} settings;

static struct {
    int fd;
    char *settings;
    int ended;
    volatile int error;                 /* errno; -1 if the request has not run */
} rotation;

/* The question of hook_ask(), such as HOOK_SNAPSHOT, and its address. */
static int asked;
static uint64_t asked_about;
/* The answer to HOOK_SNAPSHOT, and its number of objects. */
static struct hook_object *volatile copy;
static int64_t copied;

/* Whether the calling thread's next large object is a safepoint allocation, which engine.py
   makes so that the pending request runs. */
static __thread __attribute__((tls_model("initial-exec"))) int is_safepoint;

static volatile int are_pages_writable; /* whether the pages with the entries of the GC's
                                           functions are writable */
/* Whether a request is running.  Threads without the GIL read this variable to wait for the
   end of the request. */
static volatile int is_running_request;
static int is_forked_child;     /* whether this is a forked child that is not sampled */
static int end_error = -1;      /* result of hook_end_error() */

/* Make the pages with the entries writable, or read-only again if 'writable' is 0. */
static void make_pages(int writable)
{
    are_pages_writable = trampoline_writable(writable) == 0 && writable;
}

static void answer_question(void)
{
    switch (asked) {
    case HOOK_SNAPSHOT:
        free(copy);
        copy = objects_copy(asked_about, &copied);
        break;
    case HOOK_CLEAR:
        objects_clear();
        break;
    case HOOK_RESET_PEAK:
        objects_reset_peak();
        break;
    case HOOK_HELD:
    case HOOK_REACHED:
        held_by_ask(asked_about, asked == HOOK_HELD);
        break;
    case HOOK_EXAMINED:
        held_by_examined(asked_about != 0);
        break;
    case HOOK_COLLECT:
        nursery_collect_soon();
        break;
    }
}

/* Stop sampling.  The entries stay patched, and the replacements only call the GC's
   functions. */
static void pause_sampling(void)
{
    if (nursery.phase != NURSERY_OFF)
        nursery_stop();
    objects_tell_waiting();
    objects_end();
}

/* Stop sampling, and restore libpypy's code. */
static void unhook(void)
{
    pause_sampling();
    run_note_raw_memory();
    raw_memory_end();
    make_pages(1);
    if (are_pages_writable) {
        trampoline_set(0);
        make_pages(0);
    }
    if (is_forked_child)
        children_count();
    is_forked_child = 0;
}

/* Return whether a request may run only in a safepoint allocation.
 *
 * Sampling begins only there, because the thread is then not inside an original function
 * whose entry is not patched yet.  A snapshot needs the thread that requested it, because
 * this thread has listed the roots: its own stack, and copies of the other threads'
 * stacks.  A profile ends only there, because any other object that is being allocated has
 * no type yet.  UNHOOK_SOON gets no safepoint allocation, so it may run anywhere.
 */
static int needs_safepoint(int wanted)
{
    switch (wanted) {
    case ASK:
        return asked == HOOK_HELD || asked == HOOK_REACHED;
    case HOOK:
    case UNHOOK:
    case ROTATE:
    case PAUSE:
    case END:
        return 1;
    default:
        return 0;
    }
}

/* Run the pending request.  The caller has the GIL between two allocations.
   'at_safepoint' is true after a safepoint allocation. */
static void run_pending_request(int at_safepoint)
{
    int saved_errno = errno;
    int wanted = request;

    if (wanted == NOTHING || nursery.inside || (!at_safepoint && needs_safepoint(wanted)))
        return;
    is_running_request = 1;
    if (!__sync_bool_compare_and_swap(&request, wanted, NOTHING))
        wanted = NOTHING;       /* another thread has changed the request; the new
                                   request runs next time */
    switch (wanted) {
    case HOOK:
        trampoline_set(1);
        make_pages(0);
        if (settings.facts & HOOK_IN_MEMORY)
            recorder_without_samples();
        nursery_start(settings.interval, settings.seed, settings.fixed);
        if (raw_memory_begin() == 0)
            run_note_raw_memory();
        break;
    case UPDATE:
        nursery_update();
        break;
    case UNHOOK:
    case UNHOOK_SOON:
        unhook();
        break;
    case ASK:
        answer_question();
        break;
    case ROTATE:
        nursery_update();               /* the segment counts all bytes up to now */
        rotation.error = run_rotate(rotation.fd, rotation.settings,
                                    &rotation.ended);
        break;
    case PAUSE:
        pause_sampling();
        break;
    case END:
        unhook();
        end_error = run_end();
        break;
    }
    __sync_synchronize();
    is_running_request = 0;
    errno = saved_errno;
}

void *start_stop_collect_and_reserve(void *gc, intptr_t size)
{
    void *object;

    raw_memory_gc_depth++;
    object = nursery_collect_and_reserve(gc, size);
    raw_memory_gc_depth--;
    run_pending_request(0);
    return object;
}

void start_stop_minor_collection(void *gc)
{
    raw_memory_gc_depth++;
    nursery_minor_collection(gc);
    raw_memory_gc_depth--;
    run_pending_request(0);
}

void *start_stop_external_malloc(void *gc, uintptr_t type, intptr_t length,
                                 uintptr_t young)
{
    void *object;

    raw_memory_gc_depth++;
    if (is_safepoint)         /* the program did not allocate this object */
        object = nursery.original.external_malloc(gc, type, length, young);
    else
        object = nursery_external_malloc(gc, type, length, young);
    raw_memory_gc_depth--;
    run_pending_request(is_safepoint);
    is_safepoint = 0;
    return object;
}

uint64_t hook_entry_patch(void)
{
    return trampoline_word(ENTRY_EXTERNAL_MALLOC);
}

void hook_entry_changed(void)
{
    trampoline_changed();
}

/* Restore libpypy's code at the next call of a replacement. */
static void unhook_soon(void)
{
    if (hook_is_hooked())
        request = UNHOOK_SOON;
}

int hook_hook(int64_t interval, uint64_t seed, int fixed_gaps, int facts)
{
    int error;

    if (hook_is_hooked())
        return EBUSY;
    error = trampoline_writable(1);
    are_pages_writable = 1;
    if (error != 0) {
        make_pages(0);
        return error;
    }
    if (facts != 0)
        error = objects_begin(seed, fixed_gaps, facts & HOOK_LIFETIMES);
    if (error != 0) {
        make_pages(0);
        return error;
    }
    settings.interval = interval;
    settings.seed = seed;
    settings.fixed = fixed_gaps;
    settings.facts = facts;
    run_at_disable(unhook_soon);
    request = HOOK;
    is_safepoint = 1;
    return 0;
}

void hook_set_interval(int64_t interval)
{
    recorder_limit(0, 0);
    child_limit(0, 0);
    nursery.new_interval = interval;
    if (__sync_bool_compare_and_swap(&request, NOTHING, UPDATE))
        is_safepoint = 1;
}

void hook_ask(int what, uint64_t address)
{
    asked = what;
    asked_about = address;
    if (__sync_bool_compare_and_swap(&request, NOTHING, ASK))
        is_safepoint = 1;
}

void hook_forget_question(void)
{
    is_safepoint = 0;
    (void)__sync_bool_compare_and_swap(&request, ASK, NOTHING);
}

int hook_rotate(int fd, const char *next_settings)
{
    char *copied_settings = strdup(next_settings);

    if (copied_settings == NULL)
        return ENOMEM;
    free(rotation.settings);            /* no request uses the old settings */
    rotation.settings = copied_settings;
    rotation.fd = fd;
    rotation.error = -1;
    rotation.ended = 0;
    if (!__sync_bool_compare_and_swap(&request, NOTHING, ROTATE))
        return EBUSY;
    is_safepoint = 1;
    return 0;
}

int hook_rotated(int *ended)
{
    *ended = rotation.ended;
    if (request == ROTATE)
        is_safepoint = 1;       /* the last safepoint allocation came while a thread was
                                   inside the GC, so another one follows */
    return rotation.error;
}

int hook_forget_rotation(void)
{
    is_safepoint = 0;
    return __sync_bool_compare_and_swap(&request, ROTATE, NOTHING);
}

struct hook_object *hook_copy(int64_t *count)
{
    struct hook_object *result = copy;

    *count = copied;
    copy = NULL;
    return result;
}

void hook_free(struct hook_object *objects)
{
    free(objects);
}

void hook_collect_every(int64_t bytes)
{
    nursery.collect_every = bytes;
}

void hook_traced(double *alive, double *peak)
{
    objects_traced(alive, peak);
}

int hook_mark(const char *name)
{
    return recorder_mark(name);
}

int hook_define_label(const char *text)
{
    return labels_define(text);
}

void hook_label(int number)
{
    labels_set(number);
}

void hook_named(int64_t thread, const char *name)
{
    recorder_named(thread, name);
    if (thread == 0)
        child_command(name);
}

int hook_flush(void)
{
    return recorder_flush();
}

void hook_end(int profile)
{
    signals_end_time_samples();
    if (hook_is_hooked()) {
        request = profile ? END : PAUSE;
        is_safepoint = 1;
    }
}

int hook_end_error(void)
{
    return end_error;
}

void hook_unhook(void)
{
    if (hook_is_hooked()) {
        request = UNHOOK;
        is_safepoint = 1;
    }
    else {
        request = NOTHING;
        is_safepoint = 0;
        if (are_pages_writable)
            make_pages(0);
    }
}

int hook_is_sampling(void)
{
    return nursery.phase == NURSERY_RUNNING && !is_running_request &&
           request != UNHOOK && request != UNHOOK_SOON;
}

int hook_is_hooked(void)
{
    int i;

    for (i = 0; i < TRAMPOLINES; i++)
        if (trampoline_is_set(i))
            return 1;
    return is_running_request;
}

int start_stop_may_sample_child(void)
{
    return nursery.phase == NURSERY_RUNNING && !nursery.inside &&
           !is_running_request && request == NOTHING && !is_safepoint;
}

int start_stop_sample_child(uint64_t seed)
{
    int error = 0;

    settings.seed = seed;
    nursery_stop();
    if (settings.facts != 0)
        error = objects_begin(seed, settings.fixed,
                              settings.facts & HOOK_LIFETIMES);
    if (error == 0)
        nursery_start(nursery.sampler.interval, seed, settings.fixed);
    return error;
}

void start_stop_forked(void)
{
    is_safepoint = 0;
    is_running_request = 0;
    if (hook_is_hooked()) {
        is_forked_child = 1;
        request = UNHOOK_SOON;
    }
    else
        hook_unhook();
}
