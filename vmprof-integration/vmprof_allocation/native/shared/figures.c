#define _GNU_SOURCE
#include "figures.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "own_file.h"

/* Smaller changes of the metrics are not returned: 1/128 of the memory, and 1 s of
   processor time, in nanoseconds. */
#define RESIDENT_PART       128
#define PROCESSOR_TIME      1000000000

/* Reading the private memory takes at most 1/2000 of the run time.  PRIVATE_PAUSE is the
   minimum of nanoseconds between two readings. */
#define PRIVATE_SHARE       2000
#define PRIVATE_PAUSE       1000000000
/* Limits for the duration of a reading of the private memory at the end of the profile, in
   nanoseconds and as 1/50 of the profile's duration.  The first reading is assumed to take
   PRIVATE_PER_MIB nanoseconds per MiB of resident memory. */
#define PRIVATE_AT_END      20000000
#define PRIVATE_END_SHARE   50
#define PRIVATE_PER_MIB     40000

static struct own_file statm = { -1, 0, 0 }, rollup = { -1, 0, 0 };
/* values that figures_read() returned last: bytes, ns and bytes */
static int64_t resident, processor, private;
static int first_may_have_ended;        /* see figures_first_thread_may_have_ended() */
/* time of the next reading of the private memory, and duration of the last reading */
static int64_t private_due, private_took;
static int64_t opened;                  /* time of figures_open() */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static int (*read_heap)(struct figures_heap *heap);
/* the GC's counters that figures_read() returned last */
static struct figures_heap told;
/* the largest heap that was returned since the last reading at a fixed moment
   (FIGURES_AT_ONCE or FIGURES_LAST) */
static int64_t told_most;
/* whether the next reading returns the heap even if it has hardly changed: at a fixed
   moment, the heap could not be read */
static int is_heap_due;
/* the largest heap since the last reading, and its time; the time is 0 if no heap was
   seen */
static struct {
    volatile int is_taken;              /* spin lock of this struct */
    struct figures_heap heap;
    int64_t time;
} most;

static int64_t clock_in_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static int64_t monotonic(void)
{
    return clock_in_ns(CLOCK_MONOTONIC);
}

/* Return whether two values differ by at most 1/128 of the earlier one. */
static int hardly_differs(int64_t now, int64_t before)
{
    return llabs(now - before) <= before / RESIDENT_PART;
}

void figures_open(void)
{
    resident = processor = private = private_took = 0;
    memset(&told, 0, sizeof told);
    memset(&most, 0, sizeof most);      /* unlocks it, too: before a fork, a thread of the
                                           parent may have held its lock */
    opened = monotonic();
    private_due = opened + PRIVATE_PAUSE;
    (void)own_file_take(&statm, open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
    (void)own_file_take(&rollup, open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC));
}

void figures_close(void)
{
    own_file_close(&statm);
    own_file_close(&rollup);
    pthread_mutex_init(&reading, NULL);     /* before a fork, a thread of the parent may
                                               have held this lock */
}

/* Return the private memory in bytes, or -1 if it is unknown. */
static int64_t read_private(void)
{
    static const char *const parts[] = {
        "\nPrivate_Clean:", "\nPrivate_Dirty:", "\nPrivate_Hugetlb:"
    };
    char text[2048];
    ssize_t length = pread(rollup.fd, text, sizeof text - 1, 0);
    int64_t sum = 0;
    size_t i;

    if (length <= 0)
        return -1;
    text[length] = 0;
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *part = strstr(text, parts[i]);

        if (part == NULL)
            return -1;
        sum += strtoll(part + strlen(parts[i]), NULL, 10) * 1024;
    }
    return sum;
}

/* Return whether the private memory can be read within the limits for the end of a profile
   of this duration. */
static int is_quick(int64_t lasted)
{
    int64_t takes = private_took ? private_took
                                 : resident / 1048576 * PRIVATE_PER_MIB;

    return takes <= PRIVATE_AT_END && takes <= lasted / PRIVATE_END_SHARE;
}

/* Counter that is odd while a process that the sampler forked shares this process's pages.
   It grows by 1 when the sharing begins and when it ends. */
static unsigned shared;

void figures_pages_are_shared(int are)
{
    if ((__atomic_load_n(&shared, __ATOMIC_RELAXED) & 1) != (unsigned)(are != 0))
        __atomic_add_fetch(&shared, 1, __ATOMIC_SEQ_CST);
}

/* Return the private memory in bytes, or -1 if it is unknown or not due.  The kernel may
   take long, so this runs without the lock 'reading'.  Only the flusher calls it, and after
   the flusher's end the thread that stopped the flusher. */
static int64_t read_private_if_due(int how)
{
    int64_t begin = monotonic(), used, now, pause;
    unsigned before = __atomic_load_n(&shared, __ATOMIC_SEQ_CST);

    if (how == FIGURES_AT_ONCE || !own_file_is_there(&rollup) || (before & 1) != 0 ||
        !(how == FIGURES_LAST ? is_quick(begin - opened) : begin >= private_due))
        return -1;
    /* processor time, because other programs may run meanwhile */
    used = clock_in_ns(CLOCK_THREAD_CPUTIME_ID);
    now = read_private();
    private_took = clock_in_ns(CLOCK_THREAD_CPUTIME_ID) - used;
    pause = private_took * PRIVATE_SHARE;
    private_due = begin + (pause > PRIVATE_PAUSE ? pause : PRIVATE_PAUSE);
    return __atomic_load_n(&shared, __ATOMIC_SEQ_CST) == before ? now : -1;
}

void figures_heap_by(int (*read)(struct figures_heap *heap))
{
    __atomic_store_n(&read_heap, read, __ATOMIC_RELEASE);
}

/* Try to take the spin lock of 'most', and return whether this succeeded. */
static int take_most(void)
{
    return __sync_lock_test_and_set(&most.is_taken, 1) == 0;
}

void figures_heap_seen(void)
{
    int (*read)(struct figures_heap *heap) =
        __atomic_load_n(&read_heap, __ATOMIC_ACQUIRE);
    struct figures_heap heap;

    if (read == NULL || !read(&heap) || !take_most())
        return;
    if (heap.used > most.heap.used) {
        most.heap = heap;
        most.time = monotonic();
    }
    __sync_lock_release(&most.is_taken);
}

/* Store the largest heap since the last call.  Returns its time, or 0 if no heap was
   seen. */
static int64_t end_most(struct figures_heap *heap)
{
    int64_t time;
    int tries;

    /* Try a limited number of times: a signal handler that ends the process may have
       interrupted the thread that holds the lock. */
    for (tries = 0; !take_most(); tries++) {
        if (tries == 100)
            return 0;
        sched_yield();
    }
    *heap = most.heap;
    time = most.time;
    most.heap.used = most.time = 0;
    __sync_lock_release(&most.is_taken);
    return time;
}

/* Append the values of a heap, and return their number. */
static int put_heap(struct figure *figures, const struct figures_heap *heap,
                    int64_t time)
{
    int count = 0;

    if (heap->has != 0)
        figures[count++] = (struct figure){ FIGURES_HEAP_HAS, time, heap->has };
    figures[count++] = (struct figure){ FIGURES_HEAP, time, heap->used };
    if (told_most < heap->used)
        told_most = heap->used;
    return count;
}

/* Return whether the largest heap since the last reading is returned in addition to the
   present heap.  It must be larger than the present heap, and either larger than all heaps
   that were returned, or clearly different from the last one and from the present one. */
static int is_worth_telling(const struct figures_heap *largest,
                            const struct figures_heap *now)
{
    return largest->used > now->used &&
           (largest->used > told_most ||
            (largest->used > told.used && !hardly_differs(largest->used, told.used) &&
             !hardly_differs(largest->used, now->used)));
}

static int read_all_of_heap(struct figure *figures, int always)
{
    int (*read)(struct figures_heap *heap) =
        __atomic_load_n(&read_heap, __ATOMIC_ACQUIRE);
    struct figures_heap now = { 0, 0, 0 }, largest;
    int64_t time, time_of_largest;
    int count = 0, is_known = read != NULL && read(&now);

    /* With 'always', continue without the present heap: if a profile ends now, it must get
       the largest heap. */
    if (read == NULL || (!is_known && !always))
        return 0;
    time = monotonic();
    if (!is_known)
        now.used = 0;
    time_of_largest = end_most(&largest);
    if (time_of_largest != 0 && is_worth_telling(&largest, &now))
        count = put_heap(figures, &largest, time_of_largest);
    if (always) {
        told_most = 0;
        is_heap_due = 1;
    }
    if (!is_known || (!is_heap_due && count == 0 && hardly_differs(now.used, told.used) &&
                      hardly_differs(now.has, told.has)))
        return count;
    told = now;
    count += put_heap(figures + count, &now, time);
    if (is_heap_due)
        figures[count++] = (struct figure){ FIGURES_NURSERY, time, now.nursery };
    is_heap_due = 0;
    return count;
}

static int64_t nanoseconds(struct timeval t)
{
    return t.tv_sec * (int64_t)1000000000 + t.tv_usec * (int64_t)1000;
}

static int read_kernels(struct figure *figures, int always)
{
    char text[128], *second;
    ssize_t length = own_file_is_there(&statm) ? pread(statm.fd, text, sizeof text - 1, 0) : -1;
    int64_t now, time, used;
    struct rusage usage;

    __atomic_store_n(&first_may_have_ended, 1, __ATOMIC_RELAXED);
    if (length <= 0 || getrusage(RUSAGE_SELF, &usage) < 0)
        return 0;
    text[length] = 0;
    second = strchr(text, ' ');
    if (second == NULL)
        return 0;
    now = strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE);
    if (now <= 0)
        return 0;       /* the first thread has ended: the kernel reports 0 pages */
    __atomic_store_n(&first_may_have_ended, 0, __ATOMIC_RELAXED);
    used = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
    if (!always && hardly_differs(now, resident) && used - processor < PROCESSOR_TIME)
        return 0;
    resident = now;
    processor = used;
    time = monotonic();
    figures[0] = (struct figure){ FIGURES_RESIDENT, time, now };
    figures[1] = (struct figure){ FIGURES_PROCESSOR, time, used };
    figures[2] = (struct figure){ FIGURES_MINOR_FAULTS, time, usage.ru_minflt };
    figures[3] = (struct figure){ FIGURES_MAJOR_FAULTS, time, usage.ru_majflt };
    return 4;
}

int figures_read(struct figure figures[FIGURES_MOST], int how)
{
    int count;
    int64_t now = read_private_if_due(how);

    pthread_mutex_lock(&reading);
    count = read_kernels(figures, how);
    count += read_all_of_heap(figures + count, how);
    if (now >= 0 && (how == FIGURES_LAST || !hardly_differs(now, private))) {
        private = now;
        figures[count++] = (struct figure){ FIGURES_PRIVATE, monotonic(), now };
    }
    pthread_mutex_unlock(&reading);
    return count;
}

int figures_first_thread_may_have_ended(void)
{
    return __atomic_load_n(&first_may_have_ended, __ATOMIC_RELAXED);
}
