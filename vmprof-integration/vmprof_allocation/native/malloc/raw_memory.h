#pragma once
/* Sampling of *raw memory*: what anybody in the process has of malloc() and its kin.
 *
 * The calls of all libraries are led to ours (interpose.h), which pass them on.  Each
 * thread counts the bytes that it asks for up to its next sample point (sampler.h); so a
 * block of s bytes is sampled with probability 1 - exp(-s / interval), as an object of the
 * GC's is.  A sampled block has the Python stack of its thread, which may be without the
 * GIL or have none; who has asked (callers.h); and when it was freed (blocks.h).
 * realloc() gives a block back, and asks for another one.
 *
 * The GC has its heap of malloc, too.  That is no raw memory: what it holds is sampled
 * object by object.  Its calls are known by where they are made: inside of its functions
 * that are hooked (raw_memory_gc_depth), and, for large blocks, wherever else the same
 * call instruction is reached from.
 *
 * Mappings (mmap) are not sampled, nor what is asked of the C library by its own name for
 * it (__libc_malloc), of a pointer that was made before, or of another allocator than the
 * one that is called malloc.
 */

#include <stddef.h>
#include <stdint.h>

/* Of the calling thread: the GC is at work. */
extern __thread __attribute__((tls_model("initial-exec"))) int raw_memory_gc_depth;

/* How a sample gets the stack of this thread, and whether what this thread does is not the
   program's.
   native: the C functions from the one that has asked, which goes on at 'caller', to the
   innermost Python frame, into 'functions'; returns how many.  It is called without a lock,
   as the unwinder may wait for one of its own.
   key: what stands for the stack with these functions, or 0 if it has to be walked
   (recorder.h).  walk: walks the same one.  From key to walk, with a lock of raw memory's. */
#define RAW_MEMORY_NATIVE   32
struct raw_memory_stacks {
    size_t (*native)(uintptr_t caller, uintptr_t functions[RAW_MEMORY_NATIVE]);
    uint64_t (*key)(const uintptr_t *functions, size_t count);
    void (*walk)(void);
    int (*is_ignored)(void);
};
void raw_memory_prepare(const struct raw_memory_stacks *stacks);

/* What is to be done when sampling begins next; 'interval' 0: nothing.  Returns 0 or an
   errno; ENOTSUP: there is no malloc that could be sampled. */
int raw_memory_plan(int64_t interval, uint64_t seed, int fixed);

/* With the GIL, and no collection under way: begin what was planned, if anything was, and
   end it.  Ending is harmless if it was done before.  What a thread has asked for since
   sampling ended counts as its first bytes: 1 MiB of each thread at most is not sampled.
   Returns 0 or an errno: then nothing is sampled. */
int raw_memory_begin(void);
void raw_memory_end(void);
int raw_memory_is_on(void);

/* Bytes in use by malloc's own count, the GC's included; -1: it has none, or is another
   one than the C library's.  Takes the locks of its arenas, one after the other. */
int64_t raw_memory_counted(void);

/* free(), for who stands in its place */
void raw_memory_free(void *block);

/* Around the end of a profile and the beginning of its next part, without the recorder's
   lock: meanwhile there are no samples.  If the next one 'has_begun', what is in use is
   told there, and who has asked. */
void raw_memory_begin_rotation(void);
void raw_memory_end_rotation(int has_begun);

/* A forked child has begun its profile. */
void raw_memory_child_begins(void);

/* Around a fork, before the recorder's lock is taken and behind it; in a child, which
   goes on with a profile of its own, or does not. */
void raw_memory_before_fork(void);
void raw_memory_after_fork(void);
void raw_memory_forked(int goes_on);
