#define _GNU_SOURCE
#include "raw_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../sampler/sampler.h"
#include "blocks.h"
#include "callers.h"
#include "interpose.h"
#include "recorder.h"

#define OF_THREAD       static __thread __attribute__((tls_model("initial-exec")))
#define RARELY(x)       __builtin_expect(!!(x), 0)
#define NEVER_INLINE    __attribute__((noinline, cold))
/* Maximum size of a block; adding it to a counter does not overflow */
#define LARGEST         ((size_t)PTRDIFF_MAX)

/* ____________________________________________________________ */
/* sample points */

/* A thread enters the slow path at least once per STRIDE bytes, to find out whether
   sampling has begun or ended: no other thread can write to the counter of this thread. */
#define STRIDE          ((int64_t)1 << 20)

OF_THREAD int64_t left;                 /* bytes until this thread enters the slow path */
OF_THREAD struct {
    struct sampler sampler;             /* its gap begins when 'left' is used up */
    unsigned epoch;                     /* value of 'epoch' for which the sampler was
                                           started */
    int is_inside;                      /* more than 0 while the thread runs code of this
                                           file that may hold the lock of this file or the
                                           recorder's lock */
    int is_forking;                     /* whether raw_memory_before_fork() took the lock */
} own;
__thread __attribute__((tls_model("initial-exec"))) int raw_memory_gc_depth;

static struct {
    int64_t interval;
    uint64_t seed;
    int fixed;
} planned, running;
/* odd while sampling is on; incremented at each beginning and end */
static unsigned epoch;

/* Return the value of 'epoch'.  If it is odd, 'running' may be read afterwards. */
static unsigned present_epoch(void)
{
    return __atomic_load_n(&epoch, __ATOMIC_ACQUIRE);
}

static int is_on(void)
{
    return present_epoch() & 1;
}

static uint64_t thread_seed(void)
{
    return running.seed ^ (uint64_t)syscall(SYS_gettid) * 0xd1342543de82ef95u;
}

/* Set how many bytes of the gap are counted down before the next slow path. */
static void walk_on(void)
{
    left = own.sampler.gap < STRIDE ? own.sampler.gap : STRIDE;
    own.sampler.gap -= left;
}

/* The slow path of count(): 'left' is below 0 after 'size' was subtracted.  Returns the
   interval if one of the 'size' bytes is sampled, and 0 otherwise. */
static NEVER_INLINE int64_t come_by(int64_t size)
{
    unsigned now = present_epoch();
    int is_sampled;

    left += size;
    if (!(now & 1)) {
        own.epoch = now;
        left = STRIDE;
        return 0;
    }
    if (own.epoch != now) {
        own.epoch = now;
        sampler_start(&own.sampler, running.interval, thread_seed(), running.fixed);
    }
    else
        own.sampler.gap += left;
    is_sampled = sampler_object(&own.sampler, size);
    walk_on();
    return is_sampled ? own.sampler.interval : 0;
}

/* Count an allocation of 'size' bytes.  Returns the interval if the allocation is sampled,
   and 0 otherwise. */
static inline int64_t count(size_t size)
{
    if (RARELY(size > LARGEST))
        return 0;               /* the allocation will fail */
    return RARELY((left -= (int64_t)size) < 0) ? come_by((int64_t)size) : 0;
}

/* ____________________________________________________________ */
/* the real functions */

enum { MALLOC, CALLOC, REALLOC, FREE, MEMALIGN, ALIGNED_ALLOC, POSIX_MEMALIGN, VALLOC,
       PVALLOC, FUNCTIONS };
static struct interposed functions[FUNCTIONS];

#define REAL(number, type)  ((type)functions[number].real)

static inline void *real_malloc(size_t size)
{
    return REAL(MALLOC, void *(*)(size_t))(size);
}

/* ____________________________________________________________ */
/* The lock.  While a thread holds the lock, its allocations are not sampled and its
   frees are ignored: a signal handler would wait for the lock for ever. */

static volatile int locked;

static void lock(void)
{
    own.is_inside++;
    while (__sync_lock_test_and_set(&locked, 1))
        sched_yield();
}

static void unlock(void)
{
    __sync_lock_release(&locked);
    own.is_inside--;
}

/* ____________________________________________________________ */
/* the GC's own calls */

#define MOST_GC_CALLS   64
/* The return addresses of calls for smaller blocks are not kept, because code outside of
   the GC may call the same helper functions.  The chunks of the GC's lists are an
   exception. */
#define LARGE           65536
#define LIST_CHUNK      8160

/* Return addresses of the GC's calls */
static uintptr_t gc_calls[MOST_GC_CALLS];
static int gc_calls_count;

/* Return whether the GC has made this call, and keep the return address if the block is
   large. */
static int is_of_gc(uintptr_t caller, size_t size)
{
    int i, known = __atomic_load_n(&gc_calls_count, __ATOMIC_ACQUIRE);

    for (i = 0; i < known; i++)
        if (gc_calls[i] == caller)
            return 1;
    if (raw_memory_gc_depth == 0)
        return 0;
    if (size >= LARGE || size == LIST_CHUNK) {
        lock();
        if (gc_calls_count < MOST_GC_CALLS) {
            gc_calls[gc_calls_count] = caller;
            __atomic_store_n(&gc_calls_count, gc_calls_count + 1, __ATOMIC_RELEASE);
        }
        unlock();
    }
    return 1;
}

/* ____________________________________________________________ */
/* samples */

static struct raw_memory_stacks stacks;

/* Remove the sampled block at an address, if any.  This block is being freed, or its free
   was missed and the address is allocated again.  A check of all addresses that malloc()
   returns would find missed frees earlier.  But then our_malloc() would have to call
   malloc() instead of jumping to it, which adds 1 ns to the 4 ns of a pair of malloc() and
   free().  Needs the lock. */
static void take_out(uintptr_t address)
{
    struct block block;

    if (blocks_take(address, &block))
        recorder_raw_ended(block.sample.key, 0);
}

/* Add a sampled block, or record that its free will not be noticed. */
static void put_in(const struct block *block)
{
    if (!blocks_add(block))
        recorder_raw_ended(block->sample.key, 1);
}

/* Record the name of a type unless the profile has it. */
static void tell_type(int64_t type)
{
    const char *name = callers_untold_name(type);

    if (name != NULL)
        recorder_raw_type(type, name);
}

/* Return whether this thread holds neither the lock of this file nor the recorder's. */
static int may_record(void)
{
    return !own.is_inside && !recorder_has_lock();
}

/* Record a sample of a block that was just allocated.  Keeps errno. */
static void take_sample(void *memory, size_t size, int64_t interval, uintptr_t caller)
{
    struct block block = {
        (uintptr_t)memory, { .size = (int64_t)size, .interval = interval }
    };
    uintptr_t native[RAW_MEMORY_NATIVE];
    int saved_errno = errno;
    size_t count;

    if (memory == NULL || !may_record() || is_of_gc(caller, size) || stacks.is_ignored())
        return;
    own.is_inside++;
    count = stacks.native(caller, native);
    own.is_inside--;
    lock();
    /* If sampling has ended meanwhile, or has begun again, the block would stay in the
       table with a key that belongs to another sample then. */
    if (own.epoch == present_epoch()) {
        take_out(block.address);
        block.sample.type = callers_type(caller);
        if (recorder_raw(&block.sample, stacks.key(native, count), stacks.walk) != 0) {
            tell_type(block.sample.type);
            put_in(&block);
        }
    }
    unlock();
    errno = saved_errno;
}

/* ____________________________________________________________ */
/* the functions to which calls are diverted */

#define CALLER      ((uintptr_t)__builtin_return_address(0))

static void *our_malloc(size_t size)
{
    int64_t interval = count(size);
    void *memory = real_malloc(size);

    if (RARELY(interval != 0))
        take_sample(memory, size, interval, CALLER);
    return memory;
}

static void *our_calloc(size_t number, size_t size)
{
    size_t bytes = RARELY(__builtin_mul_overflow(number, size, &bytes)) ? SIZE_MAX : bytes;
    int64_t interval = count(bytes);
    void *memory = REAL(CALLOC, void *(*)(size_t, size_t))(number, size);

    if (RARELY(interval != 0))
        take_sample(memory, bytes, interval, CALLER);
    return memory;
}

/* Remove a block that is about to be freed, if it is sampled. */
static NEVER_INLINE void forget(void *memory)
{
    int saved_errno = errno;

    if (may_record()) {
        lock();
        take_out((uintptr_t)memory);
        unlock();
    }
    errno = saved_errno;
}

void raw_memory_free(void *memory)
{
    /* remove the block first: after free(), another thread can get this address */
    if (RARELY(blocks_may_have(memory)))
        forget(memory);
    REAL(FREE, void (*)(void *))(memory);
}

/* Return the key of the sampled block at an address, or 0 if no sampled block is there.
   Removes the block if its key is 'gone'.  If another thread has got the address meanwhile,
   the sample or the free() of that thread has already removed the block. */
static int64_t key_at(const void *memory, int64_t gone)
{
    int saved_errno = errno;
    const struct block *block;
    int64_t key = 0;

    if (memory != NULL && may_record()) {
        lock();
        block = blocks_find((uintptr_t)memory);
        key = block != NULL ? block->sample.key : 0;
        if (key != 0 && key == gone)
            take_out((uintptr_t)memory);
        unlock();
    }
    errno = saved_errno;
    return key;
}

/* The slow path of realloc(), for a block that may be sampled before or after the call */
static NEVER_INLINE void *move(void *memory, size_t size, int64_t interval,
                               uintptr_t caller)
{
    int64_t key = key_at(memory, 0);
    void *moved = REAL(REALLOC, void *(*)(void *, size_t))(memory, size);

    /* if realloc() fails, the block stays */
    if (key != 0 && (moved != NULL || size == 0))
        (void)key_at(memory, key);
    if (interval != 0)
        take_sample(moved, size, interval, caller);
    return moved;
}

static void *our_realloc(void *memory, size_t size)
{
    int64_t interval = count(size);

    if (RARELY(interval != 0 || blocks_may_have(memory)))
        return move(memory, size, interval, CALLER);
    return REAL(REALLOC, void *(*)(void *, size_t))(memory, size);
}

static void *aligned(int function, size_t alignment, size_t size, uintptr_t caller)
{
    int64_t interval = count(size);
    void *memory = REAL(function, void *(*)(size_t, size_t))(alignment, size);

    if (RARELY(interval != 0))
        take_sample(memory, size, interval, caller);
    return memory;
}

static void *our_memalign(size_t alignment, size_t size)
{
    return aligned(MEMALIGN, alignment, size, CALLER);
}

static void *our_aligned_alloc(size_t alignment, size_t size)
{
    return aligned(ALIGNED_ALLOC, alignment, size, CALLER);
}

static int our_posix_memalign(void **memory, size_t alignment, size_t size)
{
    int64_t interval = count(size);
    int error = REAL(POSIX_MEMALIGN, int (*)(void **, size_t, size_t))(memory, alignment,
                                                                      size);

    if (RARELY(interval != 0) && error == 0)
        take_sample(*memory, size, interval, CALLER);
    return error;
}

static void *in_pages(int function, size_t size, uintptr_t caller)
{
    int64_t interval = count(size);
    void *memory = REAL(function, void *(*)(size_t))(size);

    if (RARELY(interval != 0))
        take_sample(memory, size, interval, caller);
    return memory;
}

static void *our_valloc(size_t size)
{
    return in_pages(VALLOC, size, CALLER);
}

static void *our_pvalloc(size_t size)
{
    return in_pages(PVALLOC, size, CALLER);
}

/* A preloaded allocator may lack some of these functions. */
#pragma weak memalign
#pragma weak aligned_alloc
#pragma weak posix_memalign
#pragma weak valloc
#pragma weak pvalloc

/* The dynamic linker binds these addresses as it binds the calls of other libraries, with
   the version of each symbol.  dlsym() uses no version, and finds other functions if a
   preloaded allocator defines only old versions, as glibc's libc_malloc_debug does. */
static struct interposed functions[FUNCTIONS] = {
    [MALLOC] = { "malloc", (uintptr_t)our_malloc, (uintptr_t)malloc },
    [CALLOC] = { "calloc", (uintptr_t)our_calloc, (uintptr_t)calloc },
    [REALLOC] = { "realloc", (uintptr_t)our_realloc, (uintptr_t)realloc },
    [FREE] = { "free", (uintptr_t)raw_memory_free, (uintptr_t)free },
    [MEMALIGN] = { "memalign", (uintptr_t)our_memalign, (uintptr_t)memalign },
    [ALIGNED_ALLOC] = { "aligned_alloc", (uintptr_t)our_aligned_alloc,
                        (uintptr_t)aligned_alloc },
    [POSIX_MEMALIGN] = { "posix_memalign", (uintptr_t)our_posix_memalign,
                         (uintptr_t)posix_memalign },
    [VALLOC] = { "valloc", (uintptr_t)our_valloc, (uintptr_t)valloc },
    [PVALLOC] = { "pvalloc", (uintptr_t)our_pvalloc, (uintptr_t)pvalloc },
};

/* ____________________________________________________________ */
/* beginning and end */

void raw_memory_prepare(const struct raw_memory_stacks *of)
{
    stacks = *of;
}

int raw_memory_plan(int64_t interval, uint64_t seed, int fixed)
{
    static int is_found;
    int error = 0;

    if (interval != 0 && !is_found) {
        error = interpose_find(functions, FUNCTIONS);
        is_found = error == 0;
    }
    planned.interval = error == 0 ? interval : 0;
    planned.seed = seed;
    planned.fixed = fixed;
    return error;
}

int raw_memory_begin(void)
{
    int error;

    if (planned.interval == 0 || is_on())
        return 0;
    running = planned;
    callers_begin_part();
    __atomic_add_fetch(&epoch, 1, __ATOMIC_SEQ_CST);
    own.is_inside++;            /* the dynamic linker allocates */
    error = interpose_set();
    own.is_inside--;
    if (error != 0)
        raw_memory_end();
    return error;
}

void raw_memory_end(void)
{
    own.is_inside++;
    interpose_undo();
    own.is_inside--;
    if (!is_on())
        return;
    __atomic_add_fetch(&epoch, 1, __ATOMIC_SEQ_CST);
    lock();
    blocks_clear();
    unlock();
}

int raw_memory_is_on(void)
{
    return is_on();
}

int64_t raw_memory_counted(void)
{
    /* the fields of struct mallinfo2, which some supported C libraries do not have */
    struct {
        size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks,
               keepcost;
    } (*info)(void), counts;

    if (!interpose_is_libc())
        return -1;
    *(void **)&info = dlsym(RTLD_DEFAULT, "mallinfo2");
    if (info == NULL)
        return -1;
    counts = info();
    return (int64_t)(counts.uordblks + counts.hblkhd);
}

static void tell_again(const struct block *block)
{
    tell_type(block->sample.type);
    recorder_raw_inherited(&block->sample);
}

void raw_memory_begin_rotation(void)
{
    lock();
}

void raw_memory_end_rotation(int has_begun)
{
    if (has_begun) {
        callers_begin_part();
        blocks_each(tell_again);
    }
    unlock();
}

void raw_memory_child_begins(void)
{
    lock();
    callers_begin_part();
    unlock();
}

void raw_memory_before_fork(void)
{
    own.is_forking = !own.is_inside;
    if (own.is_forking)
        lock();
}

void raw_memory_after_fork(void)
{
    if (own.is_forking)
        unlock();
}

void raw_memory_forked(int goes_on)
{
    locked = 0;
    own.is_inside = 0;
    blocks_clear();
    callers_begin_part();
    if (!is_on())
        return;
    /* another epoch, because the counters of the threads belong to the parent's sampling */
    epoch += goes_on ? 2 : 1;
}
