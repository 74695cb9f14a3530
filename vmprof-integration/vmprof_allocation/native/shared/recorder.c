#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "figures.h"
#include "flusher.h"
#include "invariant.h"
#include "pace.h"

struct recorder_counts recorder_counts;

static int is_open, is_stopped;
static int has_settings;                /* the log's head is before them */
static volatile int *children;          /* in memory that they share */
static int children_noted, is_counted;
static void (*get_totals)(struct profile_totals *);
static uint64_t last_stack;             /* of the sample now being taken */
static uint64_t newest_stack, named_stack;
static struct pace pace;
static int64_t next_interval;
static uint64_t sampled_stack;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ____________________________________________________________ */
/* one thing at a time */

static __thread __attribute__((tls_model("initial-exec")))
struct {
    int holds_lock;
    int64_t id;
    int label, labels_epoch;
} thread;

static volatile int locked;
static void (*volatile at_unlock)(void);

static int try_lock(void)
{
    thread.holds_lock = 1;
    if (__sync_lock_test_and_set(&locked, 1) == 0)
        return 1;
    thread.holds_lock = 0;
    return 0;
}

void recorder_lock(void)
{
    INVARIANT(!thread.holds_lock);
    thread.holds_lock = 1;
    while (__sync_lock_test_and_set(&locked, 1))
        sched_yield();
}

void recorder_unlock(void)
{
    INVARIANT(thread.holds_lock);
    __sync_lock_release(&locked);
    thread.holds_lock = 0;
    if (at_unlock != NULL)
        recorder_flush_and(at_unlock);
}

int recorder_has_lock(void)
{
    return thread.holds_lock;
}

static int64_t thread_id(void)
{
    if (thread.id == 0)
        thread.id = syscall(SYS_gettid);
    return thread.id;
}

static void all_totals(struct profile_totals *totals)
{
    get_totals(totals);
    totals->lost = recorder_counts.lost;
    totals->dropped = __atomic_load_n(&recorder_counts.dropped,
                                      __ATOMIC_RELAXED);
}

/* ____________________________________________________________ */
/* labels */

static const char *(*get_label_text)(int number);
static int noted_label;                 /* of the profile's last sample */
static int labels_epoch;                /* threads may have some of an earlier run */
static unsigned char told_labels[RECORDER_LABELS / 8 + 1];

void recorder_label(int number)
{
    thread.label = number;
    thread.labels_epoch = labels_epoch;
}

void recorder_begin_labels(const char *(*text)(int number))
{
    get_label_text = text;
    labels_epoch++;
}

static int present_label(void)
{
    return thread.labels_epoch == labels_epoch ? thread.label : 0;
}

static void begin_labels(void)
{
    noted_label = 0;
    memset(told_labels, 0, sizeof told_labels);
}

/* The next sample is this thread's. */
static void note_label(int64_t now)
{
    int label = present_label();
    const char *text;

    if (label != 0 && !(told_labels[label / 8] & 1 << label % 8)) {
        text = get_label_text != NULL ? get_label_text(label) : NULL;
        if (text == NULL || !profile_log_fact(now))
            label = 0;
        else {
            facts_label_set(label, text, strlen(text));
            told_labels[label / 8] |= (unsigned char)(1 << label % 8);
        }
    }
    if (label == noted_label || !profile_log_fact(now))
        return;
    facts_label(profile_log_next_key(), label);
    noted_label = label;
}

/* ____________________________________________________________ */
/* samples */

static void finish_time_sample(int64_t now)
{
    if (last_stack != 0) {
        if (present_label() != noted_label)
            note_label(now);
        (void)profile_log_sample(last_stack, now, thread_id(), 0, 0);
        recorder_counts.time_samples++;
        last_stack = 0;
    }
}

int recorder_stack(const void *record, size_t size)
{
    uint64_t stack;

    INVARIANT(thread.holds_lock);
    stack = profile_log_stack(record, size);
    if (stack == 0)
        return 0;
    /* A time sample, until recorder_allocation() knows better.  One that
       could not be written at once comes with the next sample. */
    if (last_stack != 0)
        finish_time_sample(now_ns());
    last_stack = stack;
    if (stack > newest_stack)
        newest_stack = stack;
    return 1;
}

int recorder_has_new_stacks(void)
{
    int result = newest_stack > named_stack;

    named_stack = newest_stack;
    return result;
}

/* Fill last_stack in */
static void find_stack(uint64_t key, int64_t now, void (*walk)(void))
{
    if (key != 0)
        last_stack = profile_log_known_stack(key, now);
    if (last_stack != 0)
        return;
    walk();
    if (key != 0 && last_stack != 0)
        profile_log_remember(key, last_stack);
}

int64_t recorder_allocation(int64_t size, int64_t interval, uint64_t stack_key,
                            void (*walk)(void))
{
    int saved_errno = errno;
    int64_t now, key;

    recorder_lock();
    if (!is_open || is_stopped) {
        recorder_unlock();
        return 0;
    }
    now = now_ns();
    finish_time_sample(now);    /* of one that came late */
    find_stack(stack_key, now, walk);
    recorder_counts.samples++;
    recorder_counts.lost += (last_stack == 0);
    if (present_label() != noted_label)
        note_label(now);
    key = profile_log_sample(last_stack, now, thread_id(), size, interval);
    sampled_stack = last_stack;
    last_stack = 0;
    if (profile_log_due(now))
        profile_log_flush(now);
    next_interval = interval;
    if (pace_is_limited(&pace))
        next_interval = pace_sample(&pace, now, now_ns() - now, interval);
    recorder_unlock();
    errno = saved_errno;
    return key;
}

int recorder_mark(const char *name)
{
    int64_t now = now_ns();
    int is_there;

    recorder_lock();
    is_there = is_open && !is_stopped && profile_log_fact(now);
    if (is_there)
        facts_mark(profile_log_time(now), name, strlen(name));
    recorder_unlock();
    return is_there ? 0 : EINVAL;
}

void recorder_named(int64_t thread, const char *name)
{
    recorder_lock();
    if (is_open && !is_stopped && profile_log_name(now_ns()))
        facts_named(thread, name, strlen(name));
    recorder_unlock();
}

int64_t recorder_now(void)
{
    return now_ns();
}

void recorder_limit(int64_t per_second, int64_t share)
{
    recorder_lock();
    pace_start(&pace, now_ns(), per_second, share);
    recorder_unlock();
}

uint64_t recorder_sampled_stack(void)
{
    return sampled_stack;
}

void recorder_without_samples(void)
{
    recorder_lock();
    profile_log_without_samples();
    recorder_unlock();
}

void recorder_flush(void)
{
    recorder_lock();
    if (is_open && !is_stopped)
        profile_log_flush(now_ns());
    recorder_unlock();
}

void recorder_flush_and(void (*end)(void))
{
    static const struct timespec millisecond = { 0, 1000000 };
    int tries;

    at_unlock = thread.holds_lock ? end : NULL;
    if (at_unlock != NULL)
        return;
    for (tries = 0; tries < 100; tries++) {
        if (try_lock()) {
            if (is_open && !is_stopped)
                profile_log_flush(now_ns());
            recorder_unlock();
            break;
        }
        nanosleep(&millisecond, NULL);
    }
    end();
}

int64_t recorder_next_interval(void)
{
    return next_interval;
}

static int facts_errno;              /* with the lock */
static int64_t facts_began;

int recorder_begin_facts(int64_t collections)
{
    int saved_errno = errno;

    recorder_lock();
    if (!is_open || is_stopped) {
        recorder_unlock();
        return 0;
    }
    facts_errno = saved_errno;
    facts_began = now_ns();
    facts_collection(profile_log_time(facts_began),
                     collections - profile_log_before()->collections);
    return 1;
}

/* All facts of one collection have its time. */
static int has_room_for_fact(void)
{
    INVARIANT(thread.holds_lock);
    return profile_log_fact(facts_began);
}

void recorder_young(int64_t key, enum facts_outcome outcome, int64_t type,
                    int64_t size, int64_t live_size)
{
    if (has_room_for_fact())
        facts_young(key, outcome, type, size, live_size);
}

void recorder_freed(int64_t key, int which)
{
    if (has_room_for_fact())
        facts_freed(key, which);
}

void recorder_lost(int64_t key, int which)
{
    if (has_room_for_fact())
        facts_lost(key, which);
}

void recorder_type(int64_t number, enum facts_name kind, int64_t gcs,
                   const char *name, size_t size)
{
    if (profile_log_name(facts_began))
        facts_type(number, kind, gcs, name, size);
}

void recorder_event(enum facts_event kind, int64_t start, int64_t value)
{
    if (kind == FACTS_MINOR)
        value -= profile_log_before()->allocated;
    if (has_room_for_fact())
        facts_event(kind, profile_log_time(start), now_ns() - start, value);
}

void recorder_swept(int64_t heap, int64_t heap_at_begin, double alive, double deviation,
                    double not_known)
{
    struct facts_swept swept = { heap, heap_at_begin, llround(alive),
                                 llround(deviation), llround(not_known) };

    if (heap >= 0 && has_room_for_fact())
        facts_swept(profile_log_time(facts_began), &swept);
}

void recorder_end_facts(void)
{
    int64_t now = now_ns();

    if (profile_log_due(now))
        profile_log_flush(now);
    recorder_unlock();
    errno = facts_errno;
}

int recorder_begin_time_sample(int may_wait)
{
    /* what takes a sample is not the program's time */
    if (!thread.holds_lock) {
        if (try_lock())
            return 1;
        if (may_wait) {
            recorder_lock();
            return 1;
        }
    }
    __sync_fetch_and_add(&recorder_counts.dropped, 1);
    return 0;
}

void recorder_end_time_sample(void)
{
    int64_t now = now_ns();

    finish_time_sample(now);
    if (is_open && profile_log_due(now))
        profile_log_flush(now);
    recorder_unlock();
}

/* ____________________________________________________________ */
/* what becomes of the process */

static void note(const char *text)
{
    profile_log_flush(now_ns());
    profile_log_settings(text);
}

static void note_children(void)
{
    char text[32], *end = text + sizeof text, *p = end;
    int count = children != NULL ? *children : 0, rest;

    if (count == children_noted)
        return;
    children_noted = count;
    *--p = '\0';
    for (rest = count; rest > 0; rest /= 10)
        *--p = (char)('0' + rest % 10);
    p -= strlen("children=");
    memcpy(p, "children=", strlen("children="));
    note(p);
}

void recorder_note(const char *text)
{
    static const struct timespec millisecond = { 0, 1000000 };
    int saved_errno = errno, tries;

    /* Who has the lock may wait for a reader of the profile that never comes:
       the process has to be able to end. */
    for (tries = 0; !thread.holds_lock && tries < 1000; tries++) {
        if (try_lock()) {
            if (is_open && has_settings && !is_stopped) {
                note_children();
                note(text);
            }
            recorder_unlock();
            break;
        }
        nanosleep(&millisecond, NULL);
    }
    errno = saved_errno;
}

void recorder_count_child(void)
{
    if (children != NULL && !is_counted)
        __sync_fetch_and_add(children, 1);
    is_counted = 1;
}

static void forget_children(void)
{
    if (children != NULL)
        munmap((void *)children, sizeof *children);
    children = NULL;
}

static void expect_children(void)
{
    void *map = mmap(NULL, sizeof *children, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    forget_children();
    if (map != MAP_FAILED)
        children = map;
    children_noted = 0;
    is_counted = 1;             /* this process is not one of them */
}

/* ____________________________________________________________ */
/* figures of the whole process */

/* What was read before: who samples should not wait for the kernel. */
static void note_figures(const struct figure *figures, int count)
{
    int64_t time;
    int i;

    if (count == 0 || !is_open || is_stopped || !profile_log_fact(now_ns()))
        return;
    for (i = 0; i < count; i++) {
        time = profile_log_time(figures[i].time);
        if (time >= 0)          /* another profile may have begun meanwhile */
            facts_figure(figures[i].kind, time, figures[i].value);
    }
}

/* Returns 0 if the first thread may have ended. */
static int look_for_what_waits(int at_once)
{
    struct figure figures[FIGURES_MOST];
    int count = figures_read(figures, FIGURES_NOW_AND_THEN);

    recorder_lock();
    note_children();
    note_figures(figures, count);
    if (at_once || profile_log_due(now_ns()))
        profile_log_flush(now_ns());
    recorder_unlock();
    return !figures_first_thread_may_have_ended();
}

/* ____________________________________________________________ */
/* open and close */

void recorder_open(struct sink *sink, void (*totals)(struct profile_totals *))
{
    recorder_lock();
    profile_log_open(sink, now_ns(), all_totals);
    memset(&recorder_counts, 0, sizeof recorder_counts);
    get_totals = totals;
    last_stack = newest_stack = named_stack = 0;
    begin_labels();
    pace_start(&pace, 0, 0, 0);
    is_stopped = has_settings = 0;
    is_open = 1;
    recorder_unlock();
}

int recorder_start(const char *settings)
{
    struct figure figures[FIGURES_MOST];
    int count, error;

    figures_open();
    count = figures_read(figures, FIGURES_AT_ONCE);
    recorder_lock();
    profile_log_settings(settings);
    profile_log_flush(now_ns());
    has_settings = 1;
    note_figures(figures, count);
    error = profile_log_error();
    if (error == 0)
        error = flusher_start(look_for_what_waits);    /* which waits for the lock */
    /* until then this process may still become one that its parent counts */
    if (error == 0)
        expect_children();
    recorder_unlock();
    return error;
}

void recorder_stop(void)
{
    struct figure figures[FIGURES_MOST];
    int count;

    flusher_stop();
    count = figures_read(figures, FIGURES_LAST);
    recorder_lock();
    if (is_open && !is_stopped) {
        finish_time_sample(now_ns());
        note_children();
        note_figures(figures, count);
        profile_log_finish(now_ns());
        is_stopped = 1;
    }
    recorder_unlock();
}

void recorder_rotate(struct profile_log_next *next)
{
    struct figure figures[FIGURES_MOST];
    int count = figures_read(figures, FIGURES_AT_ONCE);

    INVARIANT(thread.holds_lock);
    finish_time_sample(now_ns());
    note_children();
    note_figures(figures, count);
    profile_log_rotate(next);
    children_noted = 0;
    newest_stack = named_stack = 0;
    begin_labels();
    note_figures(figures, figures_read(figures, FIGURES_AT_ONCE));
}

int recorder_close(void)
{
    int error;

    flusher_stop();
    recorder_lock();
    error = profile_log_close();
    if (is_open) {
        forget_children();
        figures_close();
    }
    is_open = 0;
    last_stack = 0;
    recorder_unlock();
    return error;
}

int recorder_forget(void)
{
    int was_open = is_open;

    /* another thread of the parent's may have held these */
    locked = 0;
    at_unlock = NULL;
    thread.holds_lock = 0;
    thread.id = 0;
    if (!was_open)
        return 0;
    is_counted = 0;
    figures_close();
    flusher_forget();
    profile_log_forget();
    is_open = 0;
    last_stack = 0;
    return 1;
}
