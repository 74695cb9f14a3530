#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "live.h"
#include "nursery.h"
#include "profile_log.h"
#include "vmprof_stack.h"

static struct live_place place;
static struct live_statistics statistics;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ____________________________________________________________ */
/* one thing at a time */

/* What this thread is doing.  A signal that arrives meanwhile leaves. */
static __thread __attribute__((tls_model("initial-exec")))
struct {
    int holds_lock;
    int is_control;         /* enables or disables vmprof */
    int64_t id;
} thread;

static volatile int locked;

static void take_lock(void)
{
    thread.holds_lock = 1;
    while (__sync_lock_test_and_set(&locked, 1))
        sched_yield();
}

static void release_lock(void)
{
    __sync_lock_release(&locked);
    thread.holds_lock = 0;
}

static int64_t thread_id(void)
{
    if (thread.id == 0)
        thread.id = syscall(SYS_gettid);
    return thread.id;
}

/* ____________________________________________________________ */
/* vmprof's output */

/* The head of vmprof's buffers, of which it maps 20 in one piece */
#define VMPROF_BUFFERS      20
#define VMPROF_BUFFER_SIZE  8192
struct vmprof_buffer {
    unsigned int data_size;
    unsigned int data_offset;
    char data[VMPROF_BUFFER_SIZE - 2 * sizeof(unsigned int)];
};

static int profile_fd = -1;
static struct vmprof_buffer *vmprof_buffers;
static unsigned int names_taken[VMPROF_BUFFERS];    /* bytes of it */
static int64_t first_name[VMPROF_BUFFERS];          /* to tell a reuse */
static int64_t last_key;                /* of the sample now being taken */
static char probe[VMPROF_BUFFER_SIZE];  /* a sample that is not for the log */
static size_t probe_size;
static int is_probing;

static void totals(struct profile_totals *t)
{
    t->allocated = nursery.allocated;
    t->lost = statistics.lost;
    t->dropped = statistics.dropped;
    t->collections = nursery.collections;
    t->pressures = nursery.pressures;
    t->surprises = nursery.surprises;
}

static void flush(int64_t now)
{
    struct profile_totals t;

    totals(&t);
    profile_log_flush(now, &t);
}

/* vmprof keeps the names of new functions to itself until 8 KiB are full.
   A profile whose process gets killed needs them: take the ones that came
   since the last look.  Called with the GIL held, by which they come. */
static void take_names(int i, unsigned int size)
{
    struct vmprof_buffer *b = &vmprof_buffers[i];
    int64_t first;

    memcpy(&first, b->data + 1, sizeof first);
    if (first != first_name[i] || size < names_taken[i]) {
        first_name[i] = first;
        names_taken[i] = 0;
    }
    profile_log_bytes(b->data + names_taken[i], size - names_taken[i]);
    names_taken[i] = size;
}

static int holds_names(const struct vmprof_buffer *b)
{
    unsigned int at = 0, size = b->data_size;
    int64_t length;

    if (b->data_offset != 0 || size == 0 || size > sizeof b->data)
        return 0;
    while (at + 1 + 2 * sizeof length <= size && b->data[at] == '\x02') {
        memcpy(&length, b->data + at + 1 + sizeof length, sizeof length);
        if (length < 0 || length > (int64_t)sizeof b->data)
            return 0;
        at += 1 + 2 * (unsigned int)sizeof length + (unsigned int)length;
    }
    return at == size;
}

static void take_new_names(void)
{
    int i;

    if (vmprof_buffers == NULL)
        return;
    for (i = 0; i < VMPROF_BUFFERS; i++) {
        struct vmprof_buffer *b = &vmprof_buffers[i];
        unsigned int size = b->data_size;
        if (size != names_taken[i] && holds_names(b))
            take_names(i, size);
    }
}

/* The index of vmprof's buffer from which 'data' is written, or -1 */
static int buffer_index(const char *data)
{
    ptrdiff_t offset = data - (const char *)vmprof_buffers;

    if (vmprof_buffers == NULL || offset < 0 ||
        offset >= VMPROF_BUFFERS * VMPROF_BUFFER_SIZE)
        return -1;
    return (int)(offset / VMPROF_BUFFER_SIZE);
}

static void take_record(int i, const char *data, size_t size)
{
    int64_t now = now_ns();
    int64_t key;

    if (*data == '\x02') {
        take_names(i, (unsigned int)size);
        return;
    }
    if (is_probing && size <= sizeof probe) {
        memcpy(probe, data, size);
        probe_size = size;
        return;
    }
    key = profile_log_stack(data, size);
    if (key == 0) {
        profile_log_bytes(data, size);
        return;
    }
    /* A time sample, until take_allocation_sample() knows better.  One that
       could not be written at once comes with the next sample. */
    if (last_key != 0) {
        profile_log_fact(last_key, now, thread_id(), 0, 0);
        statistics.time_samples++;
    }
    last_key = key;
}

/* What libpypy calls for write(2), while a profile is open */
static ssize_t live_write(int fd, const void *data, size_t size)
{
    int held = thread.holds_lock;
    int i = -1;

    if (fd != profile_fd ||
        (!thread.is_control && (i = buffer_index(data)) < 0))
        return write(fd, data, size);
    if (!held)
        take_lock();
    if (i < 0)
        i = buffer_index(data);
    if (i >= 0)
        take_record(i, data, size);
    else
        profile_log_bytes(data, size);      /* header, trailer */
    if (!held)
        release_lock();
    return (ssize_t)size;
}

/* What libpypy calls for mmap(2), while vmprof is being enabled */
static void *live_mmap(void *address, size_t size, int protection, int flags,
                       int fd, off_t offset)
{
    void *map = mmap(address, size, protection, flags, fd, offset);

    if (thread.is_control && map != MAP_FAILED &&
        size == VMPROF_BUFFERS * VMPROF_BUFFER_SIZE)
        vmprof_buffers = map;
    return map;
}

/* ____________________________________________________________ */
/* samples */

static struct sigaction vmprof_action;
static volatile int takes_time_samples;

/* what the program did with SIGPROF before us */
static struct sigaction program_action;
static struct itimerval program_timer;

static void call_vmprof(siginfo_t *info, void *context)
{
    vmprof_action.sa_sigaction(SIGPROF, info, context);
}

/* Have vmprof look at this thread's stack, here and now */
static void call_vmprof_now(void)
{
    siginfo_t info;
    ucontext_t context;

    /* it reads no more of these than the program counter, which it looks up
       among the JIT's code: NULL is not found there */
    memset(&info, 0, sizeof info);
    memset(&context, 0, sizeof context);
    call_vmprof(&info, &context);
}

static void finish_time_sample(int64_t now)
{
    if (last_key != 0) {
        profile_log_fact(last_key, now, thread_id(), 0, 0);
        statistics.time_samples++;
        last_key = 0;
    }
}

static void take_allocation_sample(int64_t size, int64_t interval)
{
    int saved_errno = errno;
    int64_t now = now_ns();
    uintptr_t back, stub = 0;
    uintptr_t *return_address = vmprof_stack_stub(&back);

    take_lock();
    take_new_names();
    finish_time_sample(now);    /* of one that came late */
    if (return_address != NULL) {
        stub = *return_address;
        *return_address = back;
    }
    call_vmprof_now();
    if (return_address != NULL)
        *return_address = stub;
    statistics.samples++;
    if (last_key == 0) {
        last_key = profile_log_lost_stack();
        statistics.lost++;
    }
    profile_log_fact(last_key, now, thread_id(), size, interval);
    last_key = 0;
    if (profile_log_due(now))
        flush(now);
    release_lock();
    errno = saved_errno;
}

/* Find vmprof's stack, with a sample of the thread that starts us */
static int find_stack(void)
{
    take_lock();
    probe_size = 0;
    is_probing = 1;
    call_vmprof_now();
    is_probing = 0;
    release_lock();
    return probe_size == 0 ? ENOTSUP
                           : vmprof_stack_find(place.base, probe, probe_size);
}

/* In front of vmprof's own handler.  Its signals come from the timer. */
static void on_sigprof(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    int64_t now;

    (void)signal;
    if (!takes_time_samples)
        ;       /* not ours */
    else if (thread.holds_lock) {
        /* this thread is taking a sample: not the program's time */
        __sync_fetch_and_add(&statistics.dropped, 1);
    }
    else {
        take_lock();
        call_vmprof(info, context);
        now = now_ns();
        finish_time_sample(now);
        if (profile_log_due(now))
            flush(now);
        release_lock();
    }
    errno = saved_errno;
}

/* A program that stopped allocating may be killed later: its last samples
   must not wait for the next one. */
static pthread_t flusher;
static int has_flusher;
static pthread_mutex_t flusher_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t flusher_wakes;
static int flusher_ends;

static void *run_flusher(void *ignored)
{
    struct timespec wake;

    (void)ignored;
    pthread_mutex_lock(&flusher_mutex);
    while (!flusher_ends) {
        clock_gettime(CLOCK_MONOTONIC, &wake);
        wake.tv_nsec += 200000000;
        if (wake.tv_nsec >= 1000000000) {
            wake.tv_nsec -= 1000000000;
            wake.tv_sec++;
        }
        pthread_cond_timedwait(&flusher_wakes, &flusher_mutex, &wake);
        take_lock();
        if (profile_log_due(now_ns()))
            flush(now_ns());
        release_lock();
    }
    pthread_mutex_unlock(&flusher_mutex);
    return NULL;
}

static int start_flusher(void)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    int error;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&flusher_wakes, &attributes);
    pthread_condattr_destroy(&attributes);
    flusher_ends = 0;
    sigfillset(&all);       /* the program's signals are not for it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&flusher, NULL, run_flusher, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    has_flusher = (error == 0);
    return error;
}

static void stop_flusher(void)
{
    if (!has_flusher)
        return;
    pthread_mutex_lock(&flusher_mutex);
    flusher_ends = 1;
    pthread_cond_signal(&flusher_wakes);
    pthread_mutex_unlock(&flusher_mutex);
    pthread_join(flusher, NULL);
    pthread_cond_destroy(&flusher_wakes);
    has_flusher = 0;
}

/* vmprof starts its timer again in the parent.  It would outlive an exec, and
   kill the new program. */
static void after_fork_in_parent(void)
{
    static const struct itimerval off;

    if (profile_fd >= 0 && !takes_time_samples)
        (void)setitimer(ITIMER_PROF, &off, NULL);
}

/* A child does not go on with its parent's profile.  Its nursery_top is put
   back by its next entry. */
static void after_fork_in_child(void)
{
    locked = 0;
    thread.holds_lock = 0;
    thread.id = 0;
    if (profile_fd < 0)
        return;
    has_flusher = 0;
    pthread_mutex_init(&flusher_mutex, NULL);
    profile_log_forget();
    profile_fd = -1;
    takes_time_samples = 0;
    if (nursery.phase != NURSERY_OFF)
        nursery.phase = NURSERY_STOPPING;
}

/* ____________________________________________________________ */
/* trampolines */

/* The entry becomes a jump to the detour; the instructions that the jump
   covers run in the trampoline, before a jump back behind them. */
#define JUMP_SIZE       5               /* jmp rel32 */
#define MAX_MOVED       8               /* one aligned store */
#define SLOT_SIZE       64
#define DETOUR          32              /* offset in a slot */

static uint64_t original_word[3], patched_word[3];

static void put_far_jump(unsigned char *p, const void *target)
{
    static const unsigned char jump[6] = { 0xff, 0x25, 0, 0, 0, 0 };

    memcpy(p, jump, sizeof jump);
    memcpy(p + sizeof jump, &target, sizeof target);
}

/* A page that a rel32 reaches from everywhere in libpypy's code */
static unsigned char *map_near(uintptr_t code, size_t size)
{
    const uintptr_t step = 1 << 20, reach = (uintptr_t)1 << 30;
    uintptr_t distance;

    for (distance = step; distance < reach && distance < code; distance += step) {
        void *wanted = (void *)((code - distance) & ~(uintptr_t)4095);
        void *p = mmap(wanted, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == wanted)
            return p;
        if (p != MAP_FAILED)            /* a kernel without NOREPLACE */
            munmap(p, size);
    }
    errno = ENOMEM;
    return NULL;
}

static void build_slot(unsigned char *slot, int i, const void *detour)
{
    uintptr_t entry = place.entry[i];
    unsigned char *word = (unsigned char *)&patched_word[i];
    int32_t distance = (int32_t)((intptr_t)(slot + DETOUR) -
                                 (intptr_t)(entry + JUMP_SIZE));

    memcpy(slot, (const void *)entry, (size_t)place.moved[i]);
    put_far_jump(slot + place.moved[i],
                 (const void *)(entry + (uintptr_t)place.moved[i]));
    put_far_jump(slot + DETOUR, detour);

    memcpy(&original_word[i], (const void *)entry, sizeof(uint64_t));
    patched_word[i] = original_word[i];
    word[0] = 0xe9;
    memcpy(word + 1, &distance, sizeof distance);
}

static int64_t large_size(uintptr_t type, intptr_t length)
{
    const char *info = (const char *)place.type_info + (uint32_t)type;
    int64_t size, item;

    /* as external_malloc() does: a length of 0 is no length, too */
    memcpy(&size, info + place.type_fixed_size, sizeof size);
    if (length > 0) {
        memcpy(&item, info + place.type_item_size, sizeof item);
        size += item * length;
    }
    return (size + 7) & ~(int64_t)7;
}

int live_prepare(const struct live_place *p)
{
    unsigned char *slots;
    int i;

    for (i = 0; i < 3; i++)
        if (p->moved[i] < JUMP_SIZE || p->moved[i] > MAX_MOVED ||
            p->entry[i] % sizeof(uint64_t) != 0)
            return EINVAL;
    place = *p;
    slots = map_near(place.entry[0], 4096);
    if (slots == NULL)
        return errno;
    build_slot(slots, 0, (const void *)nursery_collect_and_reserve);
    build_slot(slots + SLOT_SIZE, 1, (const void *)nursery_minor_collection);
    build_slot(slots + 2 * SLOT_SIZE, 2, (const void *)nursery_external_malloc);
    if (mprotect(slots, 4096, PROT_READ | PROT_EXEC) < 0)
        return errno;

    nursery.free = (char **)place.nursery_free;
    nursery.top = (char **)place.nursery_top;
    nursery.original.collect_and_reserve =
        (void *(*)(void *, intptr_t))(void *)slots;
    nursery.original.minor_collection =
        (void (*)(void *))(void *)(slots + SLOT_SIZE);
    nursery.original.external_malloc =
        (void *(*)(void *, uintptr_t, intptr_t, uintptr_t))
            (void *)(slots + 2 * SLOT_SIZE);
    nursery.large_size = large_size;
    nursery.take_sample = take_allocation_sample;
    return 0;
}

uint64_t live_original_word(int i)
{
    return original_word[i];
}

uint64_t live_patched_word(int i)
{
    return patched_word[i];
}

int live_writable(int writable)
{
    int protection = PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0);
    int i;

    for (i = 0; i < 3; i++)
        if (mprotect((void *)(place.entry[i] & ~(uintptr_t)4095), 4096,
                     protection) < 0)
            return errno;
    return 0;
}

/* ____________________________________________________________ */
/* start and stop */

/* libpypy's pointers to write(), mmap() and mmap64(), as they were */
static uintptr_t original[3];

static uintptr_t slot_address(int i)
{
    return i == 0 ? place.write_slot : place.mmap_slot[i - 1];
}

static int set_slot(int i, uintptr_t value)
{
    uintptr_t slot = slot_address(i);
    void *page = (void *)(slot & ~(uintptr_t)4095);

    if (slot == 0 || value == 0)
        return 0;
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE) < 0)
        return errno;
    __atomic_store_n((uintptr_t *)slot, value, __ATOMIC_SEQ_CST);
    if (place.slots_read_only && mprotect(page, 4096, PROT_READ) < 0)
        return errno;
    return 0;
}

int live_open(int fd)
{
    int error = profile_log_open(fd, now_ns());
    int i;

    if (error != 0)
        return error;
    memset(&statistics, 0, sizeof statistics);
    memset(names_taken, 0, sizeof names_taken);
    memset(first_name, 0, sizeof first_name);
    vmprof_buffers = NULL;
    profile_fd = fd;
    (void)sigaction(SIGPROF, NULL, &program_action);
    (void)getitimer(ITIMER_PROF, &program_timer);
    for (i = 0; i < 3 && error == 0; i++) {
        if (slot_address(i) != 0)
            original[i] = *(uintptr_t *)slot_address(i);
        error = set_slot(i, i == 0 ? (uintptr_t)live_write
                                   : (uintptr_t)live_mmap);
    }
    thread.is_control = (error == 0);
    if (error != 0)
        live_close();
    return error;
}

int live_enabled(const char *settings, int take_time_samples)
{
    static const struct itimerval off;
    static int has_fork_handlers;
    struct sigaction action;
    int error;

    thread.is_control = 0;
    if (set_slot(1, original[1]) != 0 || set_slot(2, original[2]) != 0)
        return errno;
    if (sigaction(SIGPROF, NULL, &vmprof_action) < 0)
        return errno;
    if (!(vmprof_action.sa_flags & SA_SIGINFO) || vmprof_buffers == NULL)
        return ENOTSUP;
    error = find_stack();
    if (error != 0)
        return error;
    takes_time_samples = take_time_samples;
    if (!take_time_samples && setitimer(ITIMER_PROF, &off, NULL) < 0)
        return errno;
    action = vmprof_action;
    action.sa_sigaction = on_sigprof;
    if (sigaction(SIGPROF, &action, NULL) < 0)
        return errno;
    if (!has_fork_handlers) {
        /* after vmprof's own, which it has set by now */
        error = pthread_atfork(NULL, after_fork_in_parent, after_fork_in_child);
        if (error != 0)
            return error;
        has_fork_handlers = 1;
    }
    take_lock();
    profile_log_settings(settings);
    flush(now_ns());
    release_lock();
    return start_flusher();
}

void live_start(int64_t interval, uint64_t seed, int fixed_gaps)
{
    nursery_start(interval, seed, fixed_gaps);
}

void live_set_first_top(uintptr_t top)
{
    nursery.first_top = (char *)top;
}

void live_set_interval(int64_t interval)
{
    nursery.new_interval = interval;
}

void live_stop(void)
{
    /* not begun yet: nursery_top is the real one */
    if (__sync_bool_compare_and_swap(&nursery.phase, NURSERY_STARTING,
                                     NURSERY_OFF))
        return;
    if (nursery.phase != NURSERY_OFF)
        nursery.phase = NURSERY_STOPPING;
}

int live_is_active(void)
{
    return nursery.phase != NURSERY_OFF;
}

void live_disabling(void)
{
    struct sigaction action;

    /* Our handler stays until vmprof ignores the signal: a raw one could
       interrupt us.  If the program has set one of its own, that is the one
       to put back. */
    takes_time_samples = 0;
    if (sigaction(SIGPROF, NULL, &action) == 0 &&
        action.sa_sigaction != on_sigprof &&
        action.sa_sigaction != vmprof_action.sa_sigaction)
        program_action = action;
    stop_flusher();
    take_lock();
    finish_time_sample(now_ns());
    flush(now_ns());
    release_lock();
    thread.is_control = 1;
}

int live_close(void)
{
    int error, i;

    thread.is_control = 0;
    /* vmprof leaves the signal ignored, which programs started from this one
       would inherit; that has discarded what was on its way */
    (void)sigaction(SIGPROF, &program_action, NULL);
    if (profile_fd >= 0)
        (void)setitimer(ITIMER_PROF, &program_timer, NULL);
    for (i = 0; i < 3; i++) {
        (void)set_slot(i, original[i]);
        original[i] = 0;
    }
    vmprof_buffers = NULL;
    profile_fd = -1;
    take_lock();
    error = profile_log_close();
    release_lock();
    return error;
}

void live_get_statistics(struct live_statistics *result)
{
    *result = statistics;
    result->allocated = nursery.allocated;
    result->collections = nursery.collections;
    result->pressures = nursery.pressures;
    result->surprises = nursery.surprises;
}
