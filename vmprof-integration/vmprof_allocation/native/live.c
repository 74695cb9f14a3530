#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "live.h"
#include "nursery.h"
#include "recorder.h"
#include "vmprof_stack.h"

static struct live_place place;

/* This thread enables or disables vmprof. */
static __thread __attribute__((tls_model("initial-exec"))) int is_control;

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
static char probe[VMPROF_BUFFER_SIZE];  /* a sample that is not for the log */
static size_t probe_size;
static int is_probing;

static void totals(struct profile_totals *t)
{
    t->allocated = nursery.allocated;
    t->collections = nursery.collections;
    t->pressures = nursery.pressures;
    t->surprises = nursery.surprises;
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
    if (*data == '\x02') {
        take_names(i, (unsigned int)size);
        return;
    }
    if (is_probing && size <= sizeof probe) {
        memcpy(probe, data, size);
        probe_size = size;
        return;
    }
    if (!recorder_stack(data, size))
        profile_log_bytes(data, size);
}

/* What libpypy calls for write(2), while a profile is open */
static ssize_t live_write(int fd, const void *data, size_t size)
{
    int held = recorder_has_lock();
    int i = -1;

    if (fd != profile_fd ||
        (!is_control && (i = buffer_index(data)) < 0))
        return write(fd, data, size);
    if (!held)
        recorder_lock();
    if (i < 0)
        i = buffer_index(data);
    if (i >= 0)
        take_record(i, data, size);
    else
        profile_log_bytes(data, size);      /* header, trailer */
    if (!held)
        recorder_unlock();
    return (ssize_t)size;
}

/* What libpypy calls for mmap(2), while vmprof is being enabled */
static void *live_mmap(void *address, size_t size, int protection, int flags,
                       int fd, off_t offset)
{
    void *map = mmap(address, size, protection, flags, fd, offset);

    if (is_control && map != MAP_FAILED &&
        size == VMPROF_BUFFERS * VMPROF_BUFFER_SIZE)
        vmprof_buffers = map;
    return map;
}

/* What libpypy calls for lseek(2), while a profile is open: with each sample
   vmprof rewinds the file that tells the resident memory, also if it has not
   opened it, and learns from the kernel that -1 is no file. */
static off_t live_lseek(int fd, off_t offset, int whence)
{
    if (fd < 0) {
        errno = EBADF;
        return -1;
    }
    return lseek(fd, offset, whence);
}

/* ____________________________________________________________ */
/* samples */

static struct sigaction vmprof_action;
static volatile int takes_time_samples;

/* Around what vmprof's handler does.  The first tells whether vmprof ignores
   its signals just now. */
static long (*vmprof_enter_signal)(void);
static long (*vmprof_exit_signal)(void);

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
        take_new_names();
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
    recorder_lock();
    probe_size = 0;
    is_probing = 1;
    call_vmprof_now();
    is_probing = 0;
    recorder_unlock();
    return probe_size == 0 ? ENOTSUP
                           : vmprof_stack_find(place.base, probe, probe_size);
}

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
    if (!recorder_forget())
        return;
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

/* A function of libpypy's, or NULL */
static void *pypy_symbol(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    Dl_info info;

    if (address == NULL || dladdr(address, &info) == 0 ||
        (uintptr_t)info.dli_fbase != place.base)
        return NULL;
    return address;
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
    vmprof_enter_signal = (long (*)(void))pypy_symbol("vmprof_enter_signal");
    vmprof_exit_signal = (long (*)(void))pypy_symbol("vmprof_exit_signal");
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

/* libpypy's pointers to C functions: where they are, and what they become */
static const struct {
    const uintptr_t *address;
    uintptr_t ours;
} slots[] = {
    { &place.write_slot, (uintptr_t)live_write },
    { &place.mmap_slot[0], (uintptr_t)live_mmap },
    { &place.mmap_slot[1], (uintptr_t)live_mmap },
    { &place.seek_slot[0], (uintptr_t)live_lseek },
    { &place.seek_slot[1], (uintptr_t)live_lseek },
};

#define SLOTS   ((int)(sizeof slots / sizeof *slots))

/* and what they were */
static uintptr_t original[SLOTS];

static int set_slot(int i, uintptr_t value)
{
    uintptr_t slot = *slots[i].address;
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
    int error = recorder_open(fd, totals);
    int i;

    if (error != 0)
        return error;
    memset(names_taken, 0, sizeof names_taken);
    memset(first_name, 0, sizeof first_name);
    vmprof_buffers = NULL;
    profile_fd = fd;
    (void)sigaction(SIGPROF, NULL, &program_action);
    (void)getitimer(ITIMER_PROF, &program_timer);
    for (i = 0; i < SLOTS && error == 0; i++) {
        if (*slots[i].address != 0)
            original[i] = *(uintptr_t *)*slots[i].address;
        error = set_slot(i, slots[i].ours);
    }
    is_control = (error == 0);
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

    is_control = 0;
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
    return recorder_start(settings);
}

void live_start(int64_t interval, uint64_t seed, int fixed_gaps)
{
    nursery_start(interval, seed, fixed_gaps);
}

void live_set_first_top(uintptr_t top)
{
    nursery.first_top = (char *)top;
}

void live_limit(int64_t per_second, int64_t share)
{
    recorder_limit(per_second, share);
}

void live_set_interval(int64_t interval)
{
    recorder_limit(0, 0);
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
    recorder_stop();
    is_control = 1;
}

int live_close(void)
{
    int i;

    is_control = 0;
    /* vmprof leaves the signal ignored, which programs started from this one
       would inherit; that has discarded what was on its way */
    (void)sigaction(SIGPROF, &program_action, NULL);
    if (profile_fd >= 0)
        (void)setitimer(ITIMER_PROF, &program_timer, NULL);
    for (i = 0; i < SLOTS; i++) {
        (void)set_slot(i, original[i]);
        original[i] = 0;
    }
    vmprof_buffers = NULL;
    profile_fd = -1;
    return recorder_close();
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
