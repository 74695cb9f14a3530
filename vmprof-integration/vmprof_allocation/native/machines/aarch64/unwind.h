#pragma once
/* The machine stack of the calling thread, by the tables in .eh_frame.
 *
 * libgcc's unwinder begins where it is called, and can't go on behind the JIT's code,
 * which has no table.  libpypy has no frame pointers on AArch64.
 *
 * One thread at a time: with the GIL.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Of a frame: its return address into it, or the place after the one where it stands; the
   stack pointer there; and x29, which some functions count from. */
struct unwound {
    uintptr_t pc, sp, fp;
};

/* From a frame to its caller, whose stack pointer is 'limit' at most.  Returns 0 if no
   table says where that is: the frame is then as it was. */
int unwind_step(struct unwound *frame, uintptr_t limit);

#pragma GCC visibility pop
