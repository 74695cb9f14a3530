#pragma once
/* Sampling of native memory (*raw memory* in identifiers): the memory that all code of the
 * process gets from malloc() and related functions.
 *
 * The calls from all libraries are diverted to the functions here (interpose.h), which call
 * the real functions.  Each thread counts its allocated bytes down to its next sample point
 * (sampler.h).  So a block of s bytes is sampled with probability 1 - exp(-s / interval),
 * like an object of the GC.  A sample has the Python stack of its thread, which may run
 * without the GIL, or may have no Python stack.  The sample also has the library that
 * called malloc() (callers.h), and the time at which the block was freed (blocks.h).
 * realloc() frees a block and allocates another one.
 *
 * The GC gets its heap from malloc(), too.  This heap is not native memory, because its
 * objects are sampled by the GC's hooks.  A call of the GC is recognized because a hooked
 * function of the GC is running (raw_memory_gc_depth).  The address of a call that
 * allocates a large block there is kept, and recognized when no hooked function is running,
 * too.
 *
 * Some memory is not sampled: mappings (mmap), memory from the C library's own names for
 * its functions (__libc_malloc), from function pointers that were copied before sampling
 * began, and from allocators other than the process's malloc().
 */

#include <stddef.h>
#include <stdint.h>

/* How many hooked functions of the GC the calling thread is in; 0 if the GC is not at
   work */
extern __thread __attribute__((tls_model("initial-exec"))) int raw_memory_gc_depth;

/* Functions that find the stack of the calling thread for a sample.  is_ignored() returns
 * whether the sampler itself makes the allocation, which is then not sampled.
 *
 * native() stores the addresses of the C functions from the allocation's caller to the
 * innermost Python frame in 'functions', and returns their number.  'caller' is the return
 * address of the allocation.  native() is called without a lock, because the unwinder may
 * wait for a lock of its own.
 *
 * key() returns a key for the stack with these C functions, or 0 if the stack must be
 * walked (recorder.h); walk() walks the same stack.  Both are called with the lock of this
 * file.
 */
#define RAW_MEMORY_NATIVE   32
struct raw_memory_stacks {
    size_t (*native)(uintptr_t caller, uintptr_t functions[RAW_MEMORY_NATIVE]);
    uint64_t (*key)(const uintptr_t *functions, size_t count);
    void (*walk)(void);
    int (*is_ignored)(void);
};
/* Set the functions for the stacks, before the first raw_memory_plan(). */
void raw_memory_prepare(const struct raw_memory_stacks *stacks);

/* Set the interval in bytes, the seed and the kind of gaps (sampler_start()) for the next
   raw_memory_begin().  An interval of 0 means no sampling.  Returns 0 or an errno, which is
   ENOTSUP if the process has no malloc() that can be diverted. */
int raw_memory_plan(int64_t interval, uint64_t seed, int fixed);

/* Begin the planned sampling, if any.  Call this and raw_memory_end() with the GIL,
   outside of a collection.  Returns 0, or an errno if nothing is sampled.  A thread
   notices the beginning after at most 1 MiB of allocations, which are not sampled. */
int raw_memory_begin(void);
/* End the sampling, and forget all blocks.  A second call does nothing. */
void raw_memory_end(void);
/* Return whether native memory is sampled. */
int raw_memory_is_on(void);

/* Return malloc's count of the bytes in use, which includes the GC's memory.  Returns -1
   if malloc() is not glibc's, or has no such count.  Takes the locks of all arenas in
   turn. */
int64_t raw_memory_counted(void);

/* Free a block, like a diverted call of free().  Other functions that replace free() call
   this function (objects_free()). */
void raw_memory_free(void *block);

/* Called before the end of a segment, without the recorder's lock.  No samples are taken
   until raw_memory_end_rotation(). */
void raw_memory_begin_rotation(void);
/* Called after the beginning of the next segment.  If 'has_begun', records the sampled
   blocks in use and their types in this segment.  'has_begun' is 0 after an error. */
void raw_memory_end_rotation(int has_begun);

/* Called in a forked child when its profile has begun. */
void raw_memory_child_begins(void);

/* Called around a fork: in the parent before the recorder's lock is taken and after this
   lock is released, and in the child.  'goes_on' is 1 if the child continues with another
   profile, and 0 if the child is not sampled. */
void raw_memory_before_fork(void);
void raw_memory_after_fork(void);
void raw_memory_forked(int goes_on);
