#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "divert.h"
#include "live.h"
#include "nursery.h"
#include "recorder.h"
#include "trampoline.h"
#include "vmprof_output.h"
#include "vmprof_stack.h"

#define THREAD_LOCAL    static __thread __attribute__((tls_model("initial-exec")))

static struct live_place place;

/* ____________________________________________________________ */
/* samples */

static struct sigaction vmprof_action;
static volatile int takes_time_samples;

/* Around what vmprof's handler does.  The first tells whether vmprof ignores
   its signals just now. */
static long (*vmprof_enter_signal)(void);
static long (*vmprof_exit_signal)(void);

static void call_vmprof(siginfo_t *info, void *context)
{
    vmprof_action.sa_sigaction(SIGPROF, info, context);
}

/* Have vmprof look at this thread's stack, here and now */
static void call_vmprof_now(void)
{
    /* it reads no more of these than the program counter, which it looks up
       among the JIT's code: NULL is not found there */
    static siginfo_t info;
    static ucontext_t context;

    call_vmprof(&info, &context);
}

static void walk_stack(void)
{
    uintptr_t back, stub = 0;
    uintptr_t *return_address = stack_nodes_stub(vmprof_stack_innermost(),
                                                 &back);

    if (return_address != NULL) {
        stub = *return_address;
        *return_address = back;
    }
    call_vmprof_now();
    if (return_address != NULL)
        *return_address = stub;
    if (recorder_has_new_stacks())
        vmprof_output_take_names();
}

/* What stands for this thread's stack; 0 if vmprof would take no sample now,
   or can't be asked */
static uint64_t stack_key(void)
{
    int ignores;

    if (vmprof_enter_signal == NULL || vmprof_exit_signal == NULL)
        return 0;
    ignores = vmprof_enter_signal() != 0;
    (void)vmprof_exit_signal();
    return ignores ? 0 : stack_nodes_key(vmprof_stack_innermost(), 0);
}

static int64_t take_allocation_sample(int64_t size, int64_t interval)
{
    if (recorder_allocation(size, interval, stack_key(), walk_stack) == 0)
        return interval;
    return recorder_next_interval();
}

/* Find vmprof's stack, with a sample of the thread that starts us */
static int find_stack(void)
{
    static const struct timespec millisecond = { 0, 1000000 };
    const char *record;
    size_t size = 0;
    int tries;

    /* vmprof takes none while another thread changes the table of the JIT's
       code */
    for (tries = 0; tries < 1000 && size == 0; tries++) {
        if (tries > 0)
            nanosleep(&millisecond, NULL);
        size = vmprof_output_probe(call_vmprof_now, &record);
    }
    return size == 0 ? ENOTSUP : vmprof_stack_find(place.base, record, size);
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

/* ____________________________________________________________ */
/* SIGPROF and its timer belong to the program, but for time samples */

/* what the program did with them, as long as they are not its own */
static struct sigaction program_action;
static struct itimerval program_timer;
static enum {
    OWN,            /* they are the program's */
    OURS,           /* time samples: ours, unless the program has set another
                       handler since */
    SAVED           /* vmprof does with them what it likes */
} signal_state;

/* In front of vmprof's own handler.  Its signals come from the timer. */
static void on_sigprof(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;

    (void)signal;
    if (takes_time_samples && recorder_begin_time_sample(1)) {
        call_vmprof(info, context);
        recorder_end_time_sample();
    }
    errno = saved_errno;
}

static void save_program_signal(void)
{
    struct sigaction action;

    if (signal_state != SAVED && sigaction(SIGPROF, NULL, &action) == 0 &&
        !(signal_state == OURS && action.sa_sigaction == on_sigprof))
        program_action = action;
    if (signal_state == OWN)
        (void)getitimer(ITIMER_PROF, &program_timer);
    signal_state = SAVED;
}

/* vmprof leaves the signal ignored, which programs started from this one would
   inherit; that has discarded what was on its way. */
static void restore_program_signal(void)
{
    if (signal_state != OWN) {
        (void)sigaction(SIGPROF, &program_action, NULL);
        (void)setitimer(ITIMER_PROF, &program_timer, NULL);
    }
    signal_state = OWN;
}

/* ____________________________________________________________ */
/* requests: see live.h */

enum { NOTHING, HOOK, UPDATE, UNHOOK };

static volatile int request;
static struct {
    int64_t interval;
    uint64_t seed;
    int fixed;
} settings;

/* this thread's next large object is a knock */
THREAD_LOCAL int knocks;

static volatile int are_pages_writable;
/* a request is being carried out: who waits for its end has no GIL */
static volatile int is_obeying;
static int is_forked_child;

static void make_pages(int writable)
{
    are_pages_writable = trampoline_writable(writable) == 0 && writable;
}

static void unhook(void)
{
    if (nursery.phase != NURSERY_OFF)
        nursery_stop();
    make_pages(1);
    if (are_pages_writable) {
        trampoline_set(0);
        make_pages(0);
    }
    if (is_forked_child)
        recorder_count_child();
    is_forked_child = 0;
}

/* With the GIL, between two allocations.  Only who knocks for it begins to
   sample: he is not inside one of the GC's functions that nobody hooked yet. */
static void obey(void)
{
    int saved_errno = errno;
    int wanted = request;

    if (wanted == NOTHING || nursery.inside || (wanted == HOOK && !knocks))
        return;
    is_obeying = 1;
    if (!__sync_bool_compare_and_swap(&request, wanted, NOTHING))
        wanted = NOTHING;       /* it has changed: next time */
    switch (wanted) {
    case HOOK:
        trampoline_set(1);
        make_pages(0);
        nursery_start(settings.interval, settings.seed, settings.fixed);
        break;
    case UPDATE:
        nursery_update();
        break;
    case UNHOOK:
        unhook();
        break;
    }
    __sync_synchronize();
    is_obeying = 0;
    errno = saved_errno;
}

static void *on_collect_and_reserve(void *gc, intptr_t size)
{
    void *object = nursery_collect_and_reserve(gc, size);

    obey();
    return object;
}

static void on_minor_collection(void *gc)
{
    nursery_minor_collection(gc);
    obey();
}

static void *on_external_malloc(void *gc, uintptr_t type, intptr_t length,
                                uintptr_t young)
{
    void *object;

    if (knocks)         /* the program did not ask for this object */
        object = nursery.original.external_malloc(gc, type, length, young);
    else
        object = nursery_external_malloc(gc, type, length, young);
    obey();
    knocks = 0;
    return object;
}

int live_hook(int64_t interval, uint64_t seed, int fixed_gaps)
{
    int error;

    if (live_is_hooked())
        return EBUSY;
    error = trampoline_writable(1);
    are_pages_writable = 1;
    if (error != 0) {
        make_pages(0);
        return error;
    }
    settings.interval = interval;
    settings.seed = seed;
    settings.fixed = fixed_gaps;
    request = HOOK;
    knocks = 1;
    return 0;
}

void live_set_interval(int64_t interval)
{
    recorder_limit(0, 0);
    nursery.new_interval = interval;
    if (__sync_bool_compare_and_swap(&request, NOTHING, UPDATE))
        knocks = 1;
}

void live_unhook(void)
{
    if (live_is_hooked()) {
        request = UNHOOK;
        knocks = 1;
    }
    else {
        request = NOTHING;
        knocks = 0;
        if (are_pages_writable)
            make_pages(0);
    }
}

int live_is_sampling(void)
{
    return nursery.phase == NURSERY_RUNNING && !is_obeying &&
           request != UNHOOK;
}

int live_is_hooked(void)
{
    int i;

    for (i = 0; i < TRAMPOLINES; i++)
        if (trampoline_is_set(i))
            return 1;
    return is_obeying;
}

/* ____________________________________________________________ */
/* what ends the process, or the profile, before its time */

static const char *ended = "";
static int error_at_end;

/* one at a time: the program may disable vmprof while another thread stops the
   sampling */
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;

static void note_end(const char *why)
{
    char note[128] = "ended=";

    strncat(note, why, sizeof note - sizeof "ended=");
    recorder_note(note);
}

/* Somebody else has disabled vmprof: the profile ends here. */
static void on_disabled(const void *trailer, size_t size)
{
    pthread_mutex_lock(&ending);
    ended = "the program disabled vmprof";
    note_end(ended);
    recorder_stop();
    recorder_lock();
    profile_log_bytes(trailer, size);
    recorder_unlock();
    error_at_end = recorder_close();
    vmprof_output_close();
    (void)divert_set_all(0);
    takes_time_samples = 0;
    restore_program_signal();
    /* nobody knocks, but the GC will be entered */
    if (live_is_hooked())
        request = UNHOOK;
    pthread_mutex_unlock(&ending);
}

static void exit_now(int code)
{
    note_end("the program called os._exit()");
    _exit(code);
}

static void abort_now(void)
{
    note_end("the process aborted");
    abort();
}

static int kill_and_note(pid_t pid, int signal)
{
    struct sigaction action;
    int result, may_end = 0;

    if (pid == getpid() && sigaction(signal, NULL, &action) == 0)
        may_end = (action.sa_handler == SIG_DFL);
    if (may_end)
        note_end("the process sent itself a signal");
    result = kill(pid, signal);
    if (may_end)
        note_end("");       /* it goes on */
    return result;
}

/* A timer outlives an exec, and would kill the new program. */
static void before_exec(struct itimerval *timer)
{
    static const struct itimerval off;

    note_end("the process became another program");
    memset(timer, 0, sizeof *timer);
    if (takes_time_samples)
        (void)setitimer(ITIMER_PROF, &off, timer);
}

static int failed_exec(int result, const struct itimerval *timer)
{
    int saved_errno = errno;

    if (takes_time_samples)
        (void)setitimer(ITIMER_PROF, timer, NULL);
    note_end("");
    errno = saved_errno;
    return result;
}

static int exec_v(const char *path, char *const arguments[])
{
    struct itimerval timer;

    before_exec(&timer);
    return failed_exec(execv(path, arguments), &timer);
}

static int exec_ve(const char *path, char *const arguments[],
                   char *const environment[])
{
    struct itimerval timer;

    before_exec(&timer);
    return failed_exec(execve(path, arguments, environment), &timer);
}

/* ____________________________________________________________ */
/* forks */

THREAD_LOCAL struct itimerval timer_at_fork;

static void before_fork(void)
{
    if (vmprof_output_is_enabled() && !takes_time_samples)
        (void)getitimer(ITIMER_PROF, &timer_at_fork);
}

/* vmprof stops the process's timer, and starts its own again. */
static void after_fork_in_parent(void)
{
    if (vmprof_output_is_enabled() && !takes_time_samples)
        (void)setitimer(ITIMER_PROF, &timer_at_fork, NULL);
}

/* A child does not go on with its parent's profile.  Most children become
   another program at once: what takes more than a few system calls is left to
   the next entry. */
static void after_fork_in_child(void)
{
    knocks = 0;
    is_obeying = 0;
    pthread_mutex_init(&ending, NULL);
    if (recorder_forget()) {
        vmprof_output_forget();
        if (signal_state != OWN)
            (void)sigaction(SIGPROF, &program_action, NULL);
        signal_state = OWN;         /* no timer goes on in a child */
        takes_time_samples = 0;
    }
    if (live_is_hooked()) {
        is_forked_child = 1;
        request = UNHOOK;
    }
    else
        live_unhook();
}

/* ____________________________________________________________ */
/* start and stop */

/* A function of libpypy's, or NULL */
static void *pypy_symbol(const char *name)
{
    void *address, *library = RTLD_DEFAULT;
    Dl_info info;

    /* it may have been loaded without its names being everybody's */
    if (dladdr((const void *)place.entry[0], &info) != 0)
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    address = dlsym(library != NULL ? library : RTLD_DEFAULT, name);
    if (address == NULL || dladdr(address, &info) == 0 ||
        (uintptr_t)info.dli_fbase != place.base)
        return NULL;
    return address;
}

uintptr_t live_base(uintptr_t inside)
{
    Dl_info info;

    return dladdr((const void *)inside, &info) == 0 ? 0
                                                    : (uintptr_t)info.dli_fbase;
}

static void totals(struct profile_totals *t)
{
    t->allocated = nursery.allocated;
    t->collections = nursery.collections;
    t->pressures = nursery.pressures;
    t->surprises = nursery.surprises;
}

int live_prepare(const struct live_place *p)
{
    static void *const detour[TRAMPOLINES] = {
        (void *)on_collect_and_reserve, (void *)on_minor_collection,
        (void *)on_external_malloc,
    };
    static const uintptr_t ours[DIVERTS] = {
        [DIVERT_WRITE] = (uintptr_t)vmprof_output_write,
        [DIVERT_MMAP] = (uintptr_t)vmprof_output_mmap,
        [DIVERT_MMAP64] = (uintptr_t)vmprof_output_mmap,
        [DIVERT_MUNMAP] = (uintptr_t)vmprof_output_munmap,
        [DIVERT_LSEEK] = (uintptr_t)vmprof_output_lseek,
        [DIVERT_LSEEK64] = (uintptr_t)vmprof_output_lseek,
        [DIVERT_EXIT] = (uintptr_t)exit_now,
        [DIVERT_ABORT] = (uintptr_t)abort_now,
        [DIVERT_KILL] = (uintptr_t)kill_and_note,
        [DIVERT_EXECV] = (uintptr_t)exec_v,
        [DIVERT_EXECVE] = (uintptr_t)exec_ve,
    };
    static int is_prepared;
    int error;

    if (is_prepared)
        return 0;       /* the hooks may be set */
    place = *p;
    vmprof_enter_signal = (long (*)(void))pypy_symbol("vmprof_enter_signal");
    vmprof_exit_signal = (long (*)(void))pypy_symbol("vmprof_exit_signal");
    error = trampoline_build(place.entry, place.moved, detour);
    if (error == 0)
        error = trampoline_writable(1);
    if (error != 0) {
        (void)trampoline_writable(0);
        return error;
    }
    error = trampoline_writable(0);
    divert_prepare(place.slot, place.slots_read_only, ours);

    nursery.free = (char **)place.nursery_free;
    nursery.top = (char **)place.nursery_top;
    nursery.original.collect_and_reserve =
        (void *(*)(void *, intptr_t))trampoline_original(0);
    nursery.original.minor_collection =
        (void (*)(void *))trampoline_original(1);
    nursery.original.external_malloc =
        (void *(*)(void *, uintptr_t, intptr_t, uintptr_t))
            trampoline_original(2);
    nursery.large_size = large_size;
    nursery.take_sample = take_allocation_sample;
    is_prepared = (error == 0);
    return error;
}

uint64_t live_door(void)
{
    return trampoline_word(2);
}

int live_open(int fd)
{
    int decoy, error;

    ended = "";
    error_at_end = 0;
    takes_time_samples = 0;
    save_program_signal();
    error = recorder_open(fd, totals);
    if (error != 0)
        return -error;
    decoy = vmprof_output_open(on_disabled);
    error = decoy < 0 ? errno : divert_set_all(1);
    if (error != 0) {
        (void)live_close();
        return -error;
    }
    vmprof_output_control(1);
    return decoy;
}

int live_enabled(const char *text, int take_time_samples)
{
    static int has_fork_handlers;
    struct sigaction action;
    int error;

    vmprof_output_control(0);
    error = divert_set(DIVERT_MMAP, 0);
    if (error == 0)
        error = divert_set(DIVERT_MMAP64, 0);
    if (error == 0 && sigaction(SIGPROF, NULL, &vmprof_action) < 0)
        error = errno;
    if (error != 0)
        return error;
    if (!(vmprof_action.sa_flags & SA_SIGINFO) ||
        !vmprof_output_is_enabled())
        return ENOTSUP;
    error = find_stack();
    if (error != 0)
        return error;
    if (!has_fork_handlers) {
        /* after vmprof's own, which it has set by now; of the ones before a
           fork, the last comes first */
        error = pthread_atfork(before_fork, after_fork_in_parent,
                               after_fork_in_child);
        if (error != 0)
            return error;
        has_fork_handlers = 1;
    }
    if (take_time_samples) {
        takes_time_samples = 1;
        action = vmprof_action;
        action.sa_sigaction = on_sigprof;
        if (sigaction(SIGPROF, &action, NULL) < 0)
            return errno;
        signal_state = OURS;
    }
    else
        restore_program_signal();
    return recorder_start(text);
}

void live_limit(int64_t per_second, int64_t share)
{
    recorder_limit(per_second, share);
}

int live_disabling(void)
{
    int is_enabled;

    pthread_mutex_lock(&ending);
    takes_time_samples = 0;
    recorder_stop();
    /* our handler stays until vmprof ignores the signal: a raw one could
       interrupt us */
    save_program_signal();
    vmprof_output_control(1);
    is_enabled = vmprof_output_is_enabled();
    pthread_mutex_unlock(&ending);
    return is_enabled;
}

void live_await_end(void)
{
    vmprof_output_control(0);
    vmprof_output_await_end();
}

int live_close(void)
{
    int error;

    pthread_mutex_lock(&ending);
    error = recorder_close();
    restore_program_signal();
    vmprof_output_close();
    (void)divert_set_all(0);
    if (error == 0)
        error = error_at_end;
    pthread_mutex_unlock(&ending);
    return error;
}

const char *live_ended(void)
{
    return ended;
}

static int socket_at_exit = -1;
static pid_t exiting_process;

static void wait_at_exit(void)
{
    sigset_t all;
    char byte = '\n';

    if (getpid() != exiting_process)
        return;                 /* a forked child */
    /* they are for a program that has ended */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    if (write(socket_at_exit, &byte, 1) == 1)
        while (read(socket_at_exit, &byte, 1) < 0 && errno == EINTR)
            ;
}

int live_wait_at_exit(int fd)
{
    static int is_registered;

    socket_at_exit = fd;
    exiting_process = getpid();
    if (!is_registered && atexit(wait_at_exit) != 0)
        return ENOMEM;
    is_registered = 1;
    return 0;
}

void live_get_statistics(struct live_statistics *result)
{
    result->samples = recorder_counts.samples;
    result->lost = recorder_counts.lost;
    result->time_samples = recorder_counts.time_samples;
    result->dropped = recorder_counts.dropped;
    result->allocated = nursery.allocated;
    result->collections = nursery.collections;
    result->pressures = nursery.pressures;
    result->surprises = nursery.surprises;
}
