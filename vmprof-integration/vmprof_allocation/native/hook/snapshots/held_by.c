#define _GNU_SOURCE
#include "held_by.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bare_fork.h"
#include "figures.h"
#include "gc/heap.h"
#include "gc/objects.h"
#include "gc/statistics.h"
#include "held/held.h"
#include "profile_log.h"
#include "recorder.h"
#include "snapshot_limits.h"

#define NOT_ASKED       (-1)
#define ENDED           (-2)
#define OF_PROBLEM      1000
#define OF_SIGNAL       2000
#define OF_FILE         3000
#define COMPARE_SECONDS 60
#define USUAL_NICENESS  10

static struct hook_place place;
/* The state of the last snapshot, for the thread that requested it.  Another thread may
   kill the process, and the PID is invalid afterwards.  So the mutex 'reaping' protects
   'child'. */
static struct {
    volatile pid_t child;               /* PID of the process; 0 without a process */
    pid_t parent;                       /* process that made the snapshot: this process,
                                           or an ancestor from which it was forked */
    int error;                          /* errno if the fork failed */
    volatile int is_over;               /* whether the result would come too late */
    int end;                            /* how the process ended, as a result of
                                           hook_held() */
    struct held_result *result;         /* shared memory, which begins with the result */
    struct hook_object *objects;        /* copies of the sampled objects, in this memory */
    size_t size, count;                 /* bytes of the shared memory; number of objects */
    int wants_holders, is_answered;
    int64_t began, still;               /* start, and the program's pause, in nanoseconds */
    int64_t allocated;                  /* bytes that were allocated in this profile before
                                           the snapshot */
} asked;
static int64_t questions, cost; /* number of snapshots with retainers; result of
                                   hook_held_cost() */
static int niceness = USUAL_NICENESS;
static pthread_mutex_t reaping = PTHREAD_MUTEX_INITIALIZER;
/* PID of the process that is about to end, where no snapshot is made any more; or 0 */
static volatile pid_t ending;

void held_by_prepare(const struct hook_place *p)
{
    place = *p;
}

static void *map_shared(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0);

    return at == MAP_FAILED ? NULL : at;
}

/* Reap the process of a snapshot.  If it is still running, it is killed.  Returns how the
   process ended, as a result of hook_held(). */
static int reap(pid_t child, const struct held_result *result)
{
    int status, is_late;

    if (bare_fork_reap(child, &status, &is_late) && WIFSIGNALED(status))
        return is_late ? OF_PROBLEM + HELD_NOT_FINISHED : OF_SIGNAL + WTERMSIG(status);
    return result->problem == HELD_ANSWERED ? 0 : OF_PROBLEM + result->problem;
}

/* ____________________________________________________________ */
/* the program's process */

static void forget(void)
{
    struct held_result *result = asked.result;
    size_t size = asked.size;

    memset(&asked, 0, sizeof asked);
    if (result != NULL)
        munmap(result, size);
}

/* Reap the process of this process's last snapshot, if any.  The caller has 'reaping'. */
static void reap_child(void)
{
    if (asked.child > 0 && asked.parent == getpid())
        asked.end = reap(asked.child, asked.result);
    asked.child = 0;
    figures_pages_are_shared(0);
}

/* Walk the heap in the forked process, and store the result.  The sampled objects are
   copied here, so that the program need not wait for the copy. */
static void answer(uint64_t list)
{
    struct held_question question;

    objects_copy_all(asked.objects);
    question.types = place.types;
    question.types_size = place.types_size;
    question.type_info = place.type_info;
    question.list = list;
    question.wants_holders = asked.wants_holders;
    question.objects = &asked.objects->address;
    question.stride = sizeof *asked.objects;
    question.count = asked.count;
    held_answer(&question, asked.result);
}

/* Fork the process of a snapshot, as held_by_ask() does.  The caller has 'reaping'. */
static void ask(uint64_t list, int wants_holders)
{
    struct profile_totals totals;
    size_t size;

    reap_child();               /* a process whose result was never taken */
    forget();
    asked.parent = getpid();
    asked.wants_holders = wants_holders;
    asked.began = recorder_now();
    statistics_totals(&totals);
    asked.allocated = totals.allocated - profile_log_before()->allocated;
    asked.count = objects_count();
    size = sizeof *asked.result + asked.count * sizeof *asked.result->found;
    size = (size + 7) / 8 * 8;
    asked.size = size + asked.count * sizeof *asked.objects;
    asked.result = map_shared(asked.size);
    if (asked.result == NULL) {
        asked.error = ENOMEM;
        return;
    }
    asked.objects = (struct hook_object *)((char *)asked.result + size);
    asked.result->problem = HELD_NOT_FINISHED;
    figures_pages_are_shared(1);
    asked.child = bare_fork(niceness);
    if (asked.child == 0) {
        answer(list);
        _exit(0);
    }
    asked.still = recorder_now() - asked.began;
    if (asked.child < 0) {
        asked.error = -asked.child;
        asked.child = 0;
        figures_pages_are_shared(0);
    }
}

void held_by_ask(uint64_t list, int wants_holders)
{
    pthread_mutex_lock(&reaping);
    if (ending != getpid())
        ask(list, wants_holders);
    pthread_mutex_unlock(&reaping);
}

void held_by_end(void)
{
    int saved_errno = errno;

    if (asked.parent == getpid()) {
        pthread_mutex_lock(&reaping);
        reap_child();
        asked.is_over = 1;
        pthread_mutex_unlock(&reaping);
    }
    errno = saved_errno;
}

void held_by_process_ends(int ends)
{
    ending = ends ? getpid() : 0;
    if (ends)
        held_by_end();
}

void held_by_forked(void)
{
    pthread_mutex_init(&reaping, NULL);
    figures_pages_are_shared(0);
}

/* Return whether the sampled object 'number' is unreachable, or reachable only from an
   object that waits for its finalizer. */
static int is_garbage(size_t number, const void *found)
{
    int how = ((const struct held_object *)found)[number].how;

    return how == HELD_NO_PATH || how == HELD_BY_FINALIZER;
}

/* Return whether the snapshot in the profile has a row for the sampled object 'number'.
   Unreachable objects that have already ended in the profile are omitted. */
static int is_told(size_t number)
{
    return !asked.objects[number].is_ended || !is_garbage(number, asked.result->found);
}

/* Write a snapshot with its retainers into the profile, as rows (PROFILE.rst).  'problem'
   is a result of hook_held().  If it is not 0, there is only one row. */
static void tell(int problem)
{
    const struct held_result *result = asked.result;
    int64_t number = ++questions, told = 0;
    size_t i;

    for (i = 0; problem == 0 && i < asked.count; i++)
        told += is_told(i);
    {
        int64_t rows = problem != 0 ? 0 : (int64_t)(
            result->holder_count + result->path_count) + told;
        int64_t row[] = { number, recorder_time(asked.began), problem, result->objects,
                          result->bytes, asked.still / 1000 * 1000,
                          result->nanoseconds / 1000 * 1000, result->memory, rows };
        recorder_held(RECORD_HELD, row, NULL);
    }
    if (problem != 0)
        return;
    for (i = 0; i < result->holder_count; i++) {
        const struct held_holder *holder = &result->holders[i];
        int64_t row[] = { number, holder->set, (int64_t)holder->address, holder->bytes,
                          holder->objects, 0 };
        recorder_held(RECORD_HOLDERS, row, holder->text);
    }
    for (i = 0; i < result->path_count; i++) {
        const struct held_path *path = &result->paths[i];
        int64_t row[] = { number, (int64_t)i + 1, path->owner, path->bytes, 0 };
        recorder_held(RECORD_HELD_PATHS, row, result->paths_text + path->text);
    }
    for (i = 0; i < asked.count; i++) {
        const struct hook_object *object = &asked.objects[i];
        int64_t row[] = { number, recorder_stack_number(object->stack),
                          object->type, object->size, object->interval,
                          result->found[i].set, result->found[i].how,
                          result->found[i].path,
                          object->live_size != object->size ? object->live_size : 0 };
        if (is_told(i))
            recorder_held(RECORD_HELD_OBJECTS, row, NULL);
    }
}

/* Return whether a thread of this process still waits for the result of the last snapshot.
   The thread may have ended since its request, so it does not count after
   BARE_FORK_SECONDS. */
static int is_asked(void)
{
    return asked.parent == getpid() && !asked.is_answered &&
           recorder_now() < asked.began + BARE_FORK_SECONDS * 1000000000LL;
}

int hook_held_looks(double seconds)
{
    pid_t child = asked.child;

    if (!is_asked())
        return NOT_ASKED;
    return child > 0 && bare_fork_is_at_work(child, seconds);
}

int hook_held(void)
{
    int problem;

    if (!is_asked())            /* this process may have been forked while its parent
                                   waited */
        return asked.parent != 0 ? ENDED : NOT_ASKED;
    pthread_mutex_lock(&reaping);
    reap_child();
    pthread_mutex_unlock(&reaping);
    problem = asked.error != 0 ? asked.error : asked.is_over ? ENDED : asked.end;
    if (asked.error == 0 && !asked.is_over) {
        int error;
        if (asked.wants_holders)
            tell(problem);
        error = recorder_flush();
        if (problem == 0 && error != 0)
            problem = error < 0 ? ENDED : OF_FILE + error;
    }
    if (problem == 0) {
        asked.is_answered = 1;          /* held_by_examined() follows */
        cost = asked.still + asked.result->nanoseconds;
    }
    else
        forget();
    return problem;
}

/* Return the bytes of the GC's heap, or -1 if they are unknown. */
static int64_t heap_size(void)
{
    int64_t size = heap_old_bytes();

    return size >= 0 ? size : heap_has();
}

int hook_snapshot_refused(int64_t most_heap, int next_niceness, int64_t memory[2])
{
    struct snapshot_memory found = { 0, 0 };
    int64_t heap = heap_size();
    int refusal;

    niceness = next_niceness;
    if (most_heap < INT64_MAX && (heap < 0 || heap > most_heap))
        return HOOK_TOO_LARGE;
    refusal = snapshot_limits_refuse("", heap < 0 ? 0 : heap, &found);
    memory[0] = found.needed;
    memory[1] = found.left;
    return refusal;
}

int64_t hook_held_cost(void)
{
    return cost;
}

void held_by_examined(int is_certain)
{
    const struct held_result *result = asked.result;

    if (asked.parent == getpid() && asked.is_answered && !asked.is_over && is_certain) {
        int64_t row[] = { recorder_time(asked.began), result->objects, result->bytes,
                          asked.still / 1000 * 1000, result->nanoseconds / 1000 * 1000,
                          result->memory, (int64_t)asked.count, asked.allocated };
        objects_examined(asked.objects, asked.count, is_garbage, result->found,
                         asked.began);
        recorder_held(RECORD_SNAPSHOTS, row, NULL);
    }
    forget();
}

int64_t hook_held_compare(uintptr_t type_info, const char *types, size_t types_size,
                          uint64_t list, const int64_t *dump, size_t words,
                          uint64_t *differ, size_t most)
{
    struct held_question question = { types, types_size, type_info, list, 0, NULL, 0, 0 };
    size_t size = sizeof(struct held_result) + sizeof(int64_t) + most * sizeof *differ;
    struct held_result *result = map_shared(size);
    /* after the result: the number of differing objects, and their addresses */
    int64_t *shared = (int64_t *)(result + 1), count;
    pid_t child;

    if (result == NULL)
        return -ENOMEM;
    result->problem = HELD_NOT_FINISHED;
    child = bare_fork(USUAL_NICENESS);
    if (child == 0) {
        *shared = held_compare(&question, result, dump, words, (uint64_t *)(shared + 1),
                               most);
        _exit(0);
    }
    count = child;
    if (child > 0) {
        int64_t until = recorder_now() + COMPARE_SECONDS * 1000000000LL;
        while (bare_fork_is_at_work(child, 1) && recorder_now() < until)
            ;
        count = -reap(child, result);
    }
    if (count == 0) {
        count = *shared;
        memcpy(differ, shared + 1,
               ((size_t)count < most ? (size_t)count : most) * sizeof *differ);
    }
    munmap(result, size);
    return count;
}
