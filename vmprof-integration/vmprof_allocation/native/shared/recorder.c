#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "children.h"
#include "figures.h"
#include "flusher.h"
#include "invariant.h"
#include "pace.h"
#include "pending.h"

/* Kinds of names in RECORD_NAMES */
enum { NAME_OF_THREAD = 1, NAME_OF_COMMAND };

struct recorder_counts recorder_counts;

static int is_open, is_stopped;
static int has_settings;                /* whether recorder_start() has written the
                                           settings, which follow vmprof's first records */
static void (*get_totals)(struct profile_totals *);
static int64_t last_stack = STACK_LOST; /* node of the present sample */
static int64_t newest_stack, named_stack;       /* largest node until now, and at the last
                                                   recorder_has_new_stacks() */
static int64_t last_key;                /* key of the newest allocation sample */
static int64_t longest_interval;        /* longest interval of an allocation sample, in
                                           bytes */
static int holds_samples, expects_outcomes;
static struct pace pace;
static int64_t next_interval;
static int64_t sampled_stack;
static int (*get_label)(void);

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ____________________________________________________________ */
/* the lock */

static __thread __attribute__((tls_model("initial-exec")))
struct {
    int holds_lock;
    int64_t id;
} thread;

static volatile int locked;
/* function for recorder_unlock() to call after writing all waiting rows, or NULL */
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
    totals->waits = pending_first_key();
}

/* ____________________________________________________________ */
/* samples */

void recorder_labels(int (*present)(void), const char *(*text)(int number))
{
    recorder_lock();
    get_label = present;
    profile_log_labels(text);
    recorder_unlock();
}

static int present_label(int64_t now)
{
    return get_label != NULL ? profile_log_needs_label(get_label(), now) : 0;
}

static void finish_time_sample(int64_t now)
{
    int64_t row[5];

    if (last_stack == STACK_LOST)
        return;
    row[0] = profile_log_time(now);
    row[1] = thread_id();
    row[2] = profile_log_needs_stack(last_stack);
    row[3] = present_label(now);
    row[4] = profile_log_memory();
    last_stack = STACK_LOST;
    if (!holds_samples)
        return;
    profile_log_row(RECORD_TICKS, now, row);
    recorder_counts.time_samples++;
}

static const struct profile_source source = { all_totals, pending_put_waiting };

static void set_stack(int64_t stack)
{
    last_stack = stack;
    if (stack > newest_stack)
        newest_stack = stack;
}

int recorder_stack(const void *record, size_t size)
{
    int64_t stack;

    INVARIANT(thread.holds_lock);
    stack = profile_log_stack(record, size);
    if (stack == STACK_LOST)
        return 0;
    /* This is the stack of a CPU sample, unless the call is from recorder_allocation().  If
       the previous CPU sample was not finished, finish it first. */
    finish_time_sample(now_ns());
    set_stack(stack);
    return 1;
}

void recorder_walked(const stack_word *words, size_t count)
{
    INVARIANT(thread.holds_lock);
    set_stack(profile_log_stack_of(words, count));
}

int recorder_has_new_stacks(void)
{
    int result = newest_stack > named_stack;

    named_stack = newest_stack;
    return result;
}

/* Find the node of the present sample's stack, and store it in last_stack. */
static void find_stack(uint64_t key, int64_t now, void (*walk)(void))
{
    if (key != 0)
        last_stack = profile_log_known_stack(key, now);
    if (last_stack != STACK_LOST)
        return;
    walk();
    if (key != 0 && last_stack != STACK_LOST)
        profile_log_remember(key, last_stack);
}

void recorder_expect_outcomes(int expected)
{
    expects_outcomes = expected;
}

static void add_sample(int64_t key, int64_t size, int64_t interval, int64_t now)
{
    struct pending sample = {
        .key = key, .time = profile_log_time(now), .size = size, .interval = interval,
        .node = last_stack, .stack = profile_log_needs_stack(last_stack),
        .memory = profile_log_memory(), .thread = (int32_t)thread_id(),
        .label = present_label(now)
    };

    if (expects_outcomes)
        pending_add(&sample, now);
    else
        pending_alone(&sample, now, OUTCOME_NOT_RECORDED);
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
    finish_time_sample(now);    /* if a CPU sample was not finished */
    find_stack(stack_key, now, walk);
    if (longest_interval < interval)
        longest_interval = interval;
    recorder_counts.samples++;
    recorder_counts.lost += (last_stack == STACK_LOST);
    key = ++last_key;
    if (holds_samples)
        add_sample(key, size, interval, now);
    else
        (void)profile_log_needs_stack(last_stack);
    sampled_stack = last_stack;
    last_stack = STACK_LOST;
    if (profile_log_due(now))
        profile_log_flush(now);
    next_interval = interval;
    if (pace_is_limited(&pace))
        next_interval = pace_sample(&pace, now, now_ns() - now, interval);
    recorder_unlock();
    errno = saved_errno;
    return key;
}

/* Return whether samples are recorded in a profile now.  Needs the lock. */
static int takes_samples(void)
{
    return is_open && !is_stopped && holds_samples;
}

/* Flush the profile if a flush is due, and release the lock.  Called after adding rows. */
static void write_and_unlock(int64_t now)
{
    if (profile_log_due(now))
        profile_log_flush(now);
    recorder_unlock();
}

static void put_raw(const struct raw_sample *sample, int64_t now, int64_t time)
{
    int64_t row[RECORD_MOST_COLUMNS] = {
        sample->key, 0, time, time != 0 ? thread_id() : 0,
        profile_log_needs_stack(sample->node), time != 0 ? present_label(now) : 0,
        profile_log_memory(), sample->size, sample->interval, sample->type,
        OUTCOME_PROMOTED, 0, 0
    };

    profile_log_row(RECORD_RAW, now, row);
}

int64_t recorder_raw(struct raw_sample *sample, uint64_t stack_key, void (*walk)(void))
{
    int saved_errno = errno;
    int64_t now;

    recorder_lock();
    sample->key = 0;
    now = now_ns();
    if (takes_samples()) {
        finish_time_sample(now);        /* if a CPU sample was not finished */
        find_stack(stack_key, now, walk);
        sample->key = ++last_key;
        sample->node = last_stack;
        last_stack = STACK_LOST;
        put_raw(sample, now, profile_log_time(now));
        write_and_unlock(now);
    }
    else
        recorder_unlock();
    errno = saved_errno;
    return sample->key;
}

void recorder_raw_ended(int64_t key, int is_lost)
{
    int saved_errno = errno;
    int64_t now, row[4];

    recorder_lock();
    now = now_ns();
    row[0] = key;
    row[1] = 0;
    row[2] = is_lost;
    row[3] = profile_log_time(now);
    if (takes_samples()) {
        profile_log_row(RECORD_RAW_ENDED, now, row);
        write_and_unlock(now);
    }
    else
        recorder_unlock();
    errno = saved_errno;
}

void recorder_raw_inherited(const struct raw_sample *sample)
{
    recorder_lock();
    if (takes_samples())
        put_raw(sample, now_ns(), 0);
    recorder_unlock();
}

void recorder_raw_type(int64_t number, const char *name)
{
    int64_t row[] = { number, TYPE_NAME_PYTHON, -1, 0 };

    recorder_lock();
    if (takes_samples())
        profile_log_text(RECORD_TYPES, now_ns(), row, name, strlen(name));
    recorder_unlock();
}

/* Append the number of bytes allocated until now, for a mark.  From this number, readers
   know whether the program has allocated between the last heap snapshot and the mark. */
static void put_allocated(int64_t now)
{
    struct profile_totals totals;
    int64_t row[] = { FIGURES_ALLOCATED, profile_log_time(now), 0 };

    get_totals(&totals);
    row[2] = totals.allocated - profile_log_before()->allocated;
    profile_log_row(RECORD_FIGURES, now, row);
}

int recorder_mark(const char *name)
{
    int64_t now = now_ns(), row[2];
    int is_there;

    recorder_lock();
    is_there = takes_samples();
    row[0] = profile_log_time(now);
    if (is_there) {
        profile_log_text(RECORD_MARKS, now, row, name, strlen(name));
        put_allocated(now);
    }
    recorder_unlock();
    return is_there ? 0 : EINVAL;
}

void recorder_named(int64_t thread, const char *name)
{
    int64_t row[] = { thread != 0 ? NAME_OF_THREAD : NAME_OF_COMMAND, thread, 0 };

    recorder_lock();
    if (is_open && !is_stopped)
        profile_log_text(RECORD_NAMES, now_ns(), row, name, strlen(name));
    recorder_unlock();
}

void recorder_held(enum record_kind kind, const int64_t *row, const char *text)
{
    recorder_lock();
    if (is_open && !is_stopped) {
        if (text != NULL)
            profile_log_text(kind, now_ns(), row, text, strlen(text));
        else
            profile_log_row(kind, now_ns(), row);
    }
    recorder_unlock();
}

int64_t recorder_time(int64_t now)
{
    return profile_log_time(now);
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

int64_t recorder_sampled_stack(void)
{
    return sampled_stack;
}

int64_t recorder_stack_number(int64_t node)
{
    int64_t number;

    recorder_lock();
    number = profile_log_needs_stack(node);
    recorder_unlock();
    return number;
}

void recorder_without_samples(void)
{
    recorder_lock();
    holds_samples = 0;
    pending_clear();
    recorder_unlock();
}

int recorder_flush(void)
{
    int error = -1;

    recorder_lock();
    if (is_open && !is_stopped) {
        profile_log_flush(now_ns());
        error = profile_log_error();
    }
    recorder_unlock();
    return error;
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

/* errno and time at recorder_begin_facts(), and number of minor collections in the segment;
   protected by the lock */
static int facts_errno;
static int64_t facts_began, facts_collections;
static int was_told;                    /* whether the outcome of a waiting sample was
                                           reported */

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
    facts_collections = collections - profile_log_before()->collections;
    return 1;
}

static int is_recorded(void)
{
    INVARIANT(thread.holds_lock);
    return holds_samples;
}

void recorder_young(int64_t key, enum outcome outcome, int64_t type,
                    int64_t size, int64_t live_size)
{
    struct outcome_of o = {
        .key = key, .outcome = outcome, .type = type, .size = size,
        .live_size = live_size, .now = facts_began,
        .collection = outcome_is_young(outcome) ? 0 : facts_collections
    };

    if (!is_recorded())
        return;
    pending_told(&o);
    was_told = 1;
}

void recorder_give_up(int64_t key)
{
    int saved_errno = errno;

    recorder_lock();
    if (takes_samples())
        pending_give_up(key, now_ns());
    recorder_unlock();
    errno = saved_errno;
}

static void put_end(int64_t key, int which, enum end how, int64_t time)
{
    int64_t row[] = { key, which, how, profile_log_time(time) };

    if (is_recorded())
        profile_log_row(RECORD_ENDED, facts_began, row);
}

void recorder_freed(int64_t key, int which)
{
    put_end(key, which, END_FREED, facts_began);
}

void recorder_freed_at(int64_t key, int which, int64_t time)
{
    put_end(key, which, END_FREED, time);
}

void recorder_reached_again(int64_t key, int which, int64_t time)
{
    put_end(key, which, END_NONE, time);
}

void recorder_lost(int64_t key, int which)
{
    put_end(key, which, END_LOST, facts_began);
}

void recorder_inherited(const struct inherited *object)
{
    int64_t row[RECORD_MOST_COLUMNS] = {
        object->key, object->which, 0, 0, profile_log_needs_stack(object->stack), 0, 0,
        object->size, object->interval, object->type, OUTCOME_PROMOTED, 0,
        object->live_size != object->size ? object->live_size : 0
    };

    if (is_recorded())
        profile_log_row(RECORD_OBJECTS, facts_began, row);
}

void recorder_type(int64_t number, enum type_name kind, int64_t gcs,
                   const char *name, size_t size)
{
    int64_t row[] = { number, kind, gcs, 0 };

    profile_log_text(RECORD_TYPES, facts_began, row, name, size);
}

void recorder_collected(int64_t start, int64_t allocated)
{
    int64_t row[] = { facts_collections, profile_log_time(start),
                      profile_log_time(now_ns()) - profile_log_time(start),
                      allocated - profile_log_before()->allocated };

    if (is_recorded())
        profile_log_row(RECORD_COLLECTIONS, facts_began, row);
}

void recorder_marked(int64_t majors, int64_t began)
{
    int64_t now = now_ns();
    int64_t row[] = { profile_log_time(now), majors, profile_log_time(
        began >= 0 ? began : now) };

    if (is_recorded())
        profile_log_row(RECORD_MARKED, facts_began, row);
}

void recorder_swept(int64_t heap, int64_t heap_at_begin, double alive,
                    double not_known)
{
    int64_t row[] = { profile_log_time(facts_began), heap, heap_at_begin, llround(alive),
                      llround(not_known), longest_interval };

    if (heap >= 0 && is_recorded())
        profile_log_row(RECORD_SWEPT, facts_began, row);
}

void recorder_end_facts(void)
{
    int64_t now = now_ns();

    if (was_told)
        pending_sweep();
    was_told = 0;
    write_and_unlock(now);
    errno = facts_errno;
}

int recorder_begin_time_sample(void)
{
    if (!thread.holds_lock && try_lock())
        return 1;
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
/* ends of processes */

static void note(const char *text)
{
    profile_log_flush(now_ns());
    profile_log_settings(text);
}

static void note_children(void)
{
    char text[32], *p = text + sizeof text;
    int count = children_news();

    if (count < 0)
        return;
    *--p = '\0';
    do
        *--p = (char)('0' + count % 10);
    while ((count /= 10) > 0);
    p -= strlen("children=");
    memcpy(p, "children=", strlen("children="));
    note(p);
}

void recorder_note(const char *text)
{
    static const struct timespec millisecond = { 0, 1000000 };
    int saved_errno = errno, tries;

    /* The process must be able to end: the thread with the lock may wait for a reader of
       the profile that never reads. */
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

/* ____________________________________________________________ */
/* metrics of the whole process */

/* Append metrics to the profile.  The caller has read them before it took the lock, because
   a sample must not wait for the kernel. */
static void note_figures(const struct figure *figures, int count)
{
    int i;

    for (i = 0; takes_samples() && i < count; i++) {
        int64_t row[] = { figures[i].kind, profile_log_time(figures[i].time),
                          figures[i].value };
        if (row[1] >= 0)        /* another profile may have begun meanwhile */
            profile_log_row(RECORD_FIGURES, figures[i].time, row);
    }
}

void recorder_figure(enum figures_kind kind, int64_t value)
{
    struct figure figure = { kind, now_ns(), value };

    recorder_lock();
    note_figures(&figure, 1);
    recorder_unlock();
}

/* Append metrics to the profile, and write the waiting rows if a flush is due, or if
   'at_once' is not 0.  Returns 0 if the first thread may have ended.  The flusher calls
   this function (flusher_start()). */
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
    get_totals = totals;
    profile_log_open(sink, now_ns(), &source);
    memset(&recorder_counts, 0, sizeof recorder_counts);
    last_stack = STACK_LOST;
    newest_stack = named_stack = 0;
    pending_clear();
    last_key = longest_interval = 0;
    holds_samples = 1;
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
    recorder_unlock();
    /* Without the lock: pthread_create() takes locks of malloc, and a thread may hold
       such a lock while it waits for the recorder's lock. */
    if (error == 0)
        error = flusher_start(look_for_what_waits);
    /* after an error, the parent may still count this process as not sampled */
    if (error == 0) {
        recorder_lock();
        children_begin();
        recorder_unlock();
    }
    return error;
}

size_t recorder_memory(void)
{
    return pending_memory();
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
        pending_put_young(now_ns());
        pending_clear();
        profile_log_flush(now_ns());
        is_stopped = 1;
    }
    recorder_unlock();
}

int64_t recorder_next_key(void)
{
    return last_key + 1;
}

void recorder_rotate(struct profile_log_next *next)
{
    struct figure figures[FIGURES_MOST];
    int count = figures_read(figures, FIGURES_AT_ONCE);
    int64_t started;

    INVARIANT(thread.holds_lock);
    finish_time_sample(now_ns());
    note_children();
    note_figures(figures, count);
    pending_put_young(now_ns());
    started = profile_log_started();
    profile_log_rotate(next);
    children_tell_again();
    pending_take_along(now_ns(), profile_log_started() - started);
    note_figures(figures, figures_read(figures, FIGURES_AT_ONCE));
}

int recorder_close(void)
{
    int error;

    flusher_stop();
    recorder_lock();
    error = profile_log_close();
    if (is_open) {
        children_end();
        figures_close();
        pending_clear();
    }
    is_open = expects_outcomes = 0;
    last_stack = STACK_LOST;
    recorder_unlock();
    return error;
}

int recorder_forget(void)
{
    int was_open = is_open;

    /* another thread of the parent may have held the lock */
    locked = 0;
    at_unlock = NULL;
    thread.holds_lock = 0;
    thread.id = 0;
    if (!was_open)
        return 0;
    children_forked();
    figures_close();
    flusher_forget();
    profile_log_forget();
    is_open = expects_outcomes = 0;
    last_stack = STACK_LOST;
    return 1;
}
