#pragma once
/* The native frames of a sample: the C functions between the allocation and the innermost
 * Python frame.
 *
 * libgcc's unwinder walks the calling thread's stack.  The walk starts in the hook, with
 * the GIL, in any thread, or inside of malloc().  So the walk must not wait for a lock
 * whose holder waits for the GIL or calls malloc().  Since version 12, libgcc finds unwind
 * tables with glibc's _dl_find_object() (2.35), which takes no lock and needs no memory.
 * Earlier versions read the linker's list of libraries under its lock, so native frames
 * are refused there.
 *
 * The linker updates its list when libraries are loaded and unloaded.  Code that is not in
 * the list, such as the JIT's, has no unwind tables, and ends the walk.
 *
 * No symbol marks the place where a Python frame begins.  But the functions that run a
 * Python frame are always the same, in the same order.  native_stack_learn() is called
 * below many Python frames that are called in different ways.  The functions that occur
 * exactly once per Python frame run the Python frames.
 */

#include <stddef.h>
#include <stdint.h>

/* Maximum number of native frames of a sample; outer ones are omitted.  Each frame takes
   0.17 us or slightly more, so all of them take 5 to 6 us.  A stack of stack_tree.h has
   room for them and vmprof's frames. */
#define NATIVE_FRAMES   32

/* Return whether this glibc has _dl_find_object(), without which there are no native
   frames.  Loads no library. */
int native_stack_is_possible(void);

/* Load the unwinder.  Walks omit the frames of the library that contains 'own'; if 'own' is
   NULL, they omit no frames.  Returns 0 or an errno: ENOTSUP if the unwinder would take
   locks. */
int native_stack_open(const void *own);

/* Find out which functions run Python frames, from the calling thread's stack.  It must
   have at least NATIVE_WINDOW native frames, which belong to Python functions that were
   called in different ways.  Returns 0, or ENOTSUP if the result is ambiguous. */
#define NATIVE_WINDOW   96
int native_stack_learn(void);

/* Find the functions that run Python frames in a stack of 'count' functions, innermost
   first.  Stores them in 'loops', and returns their number.  Returns 0 if the result is
   ambiguous. */
#define NATIVE_LOOPS    16
size_t native_stack_find_loops(const uintptr_t *functions, size_t count,
                               uintptr_t loops[NATIVE_LOOPS]);

/* Return whether 'address' is in the unwinder's code.  If the unwinder has called
   malloc(), the stack must not be walked.  For code that was registered with
   __register_frame(), the unwinder calls malloc() while it holds a lock that a walk takes,
   too. */
int native_stack_is_unwinder(uintptr_t address);

/* Walk the calling thread's stack up to the innermost Python frame, or up to the stack
   address 'limit'.  Stores the start addresses of up to 'most' functions, innermost
   first, and returns their number. */
size_t native_stack_walk(uintptr_t *functions, size_t most, uintptr_t limit);

/* The library that contains an address: its base, its start and end in memory, and its
   file name. */
struct native_library {
    uintptr_t base, start, end;
    const char *path;
};
/* Find the library that contains 'address', and store it in '*library'.  Returns 0 if no
   library contains the address. */
int native_stack_library(uintptr_t address, struct native_library *library);
