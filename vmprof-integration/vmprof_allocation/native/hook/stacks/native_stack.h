#pragma once
/* The native frames of a sample: what C code runs between the allocation and the
 * innermost Python frame.
 *
 * libgcc's unwinder walks the thread's own stack.  It gets there from the hook,
 * with the GIL, in any thread, or from inside malloc(), so that it must not wait for a lock
 * that somebody may hold who waits for the GIL, or asks for memory.  Since libgcc 12 it asks glibc's (2.35)
 * _dl_find_object() where unwind tables are, which takes no lock and needs no
 * memory; before, it went through the linker's list of libraries, under its lock.
 * So there the answer is no.
 *
 * The linker keeps that list as libraries come and go; what is not in it, like the
 * JIT's code, has no tables, and ends the walk.
 *
 * Where the Python frame begins, no symbol says.  The functions that run one are
 * always the same ones, in the same order; native_stack_learn() is called from
 * inside of many, entered in as many ways, and what all of these have in common
 * are they.
 */

#include <stddef.h>
#include <stdint.h>

/* Of one sample; the outer ones are left out.  Each takes a sixth of a microsecond or
   a bit more, so that all together take five or six.  stack_tree.h has room for them and vmprof's. */
#define NATIVE_FRAMES   32

/* Can it be had here?  Asks nobody who would have to be loaded. */
int native_stack_is_possible(void);

/* Load the unwinder.  Frames of the library that holds 'own' are left out; NULL:
   none are.  Returns 0 or an errno: ENOTSUP if it would take locks. */
int native_stack_open(const void *own);

/* Find out which functions run Python frames: at least NATIVE_WINDOW native frames
   have to be there, of Python functions that were called in different ways.  Returns
   0, or ENOTSUP if it isn't clear. */
#define NATIVE_WINDOW   96
int native_stack_learn(void);

/* The functions at 'functions', from which on there are 'count', the innermost one
   first: those that run Python frames, into 'loops', as many as it returns; 0: it
   isn't clear. */
#define NATIVE_LOOPS    16
size_t native_stack_find_loops(const uintptr_t *functions, size_t count,
                               uintptr_t loops[NATIVE_LOOPS]);

/* Whether the unwinder's own code is there.  It asks for memory with a lock that it takes to
   walk as well, if code was registered with it (__register_frame()): then it must not be
   asked to. */
int native_stack_is_unwinder(uintptr_t address);

/* Where the functions begin whose frames are inside of the innermost Python frame,
   and below the address 'limit', the innermost one first.  Returns how many. */
size_t native_stack_walk(uintptr_t *functions, size_t most, uintptr_t limit);

/* The library that holds an address: where it is loaded, how it begins and ends
   there, and its file's name.  Returns 0 if there is none. */
struct native_library {
    uintptr_t base, start, end;
    const char *path;
};
int native_stack_library(uintptr_t address, struct native_library *library);
