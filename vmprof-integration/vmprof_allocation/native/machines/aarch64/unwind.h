#pragma once
/* The machine stack of the calling thread, by the tables in .eh_frame.
 *
 * libgcc's unwinder begins where it is called, and can't go on behind the JIT's code,
 * which has no table.  libpypy has no frame pointers on AArch64.
 *
 * Nothing here waits, or changes the stack, so that a signal's handler may call it; where
 * unwind_is_free() says so.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Of a frame: the return address into it; the stack pointer there; and x29, which some
   functions count from.  Of one that a signal 'is_interrupted': where it stands, and x30,
   which it may not have saved. */
struct unwound {
    uintptr_t pc, sp, fp;
    uintptr_t lr;
    int is_interrupted;
};

/* What is true of a frame while it is at 'pc' */
struct unwind_rule {
    uintptr_t pc;
    int is_known;
    int is_signed;              /* the return address, with this frame's stack pointer */
    uint32_t cfa_register;      /* SP or FP; the caller's stack pointer (CFA) is that */
    int32_t cfa_offset;         /*   register, and this */
    int32_t lr, fp;             /* where they are saved, from the CFA; or: */
};
#define UNWIND_NOT_SAVED    INT32_MIN

#define UNWIND_RULES    4096    /* places whose rule is remembered; a power of two */

/* For one user at a time; all zero at first */
struct unwind_rules {
    struct unwind_rule at[UNWIND_RULES];
};

/* From a frame to its caller, whose stack pointer is 'limit' at most.  Returns 0 if no
   table says where that is: the frame is then as it was. */
int unwind_step(struct unwind_rules *rules, struct unwound *frame, uintptr_t limit);

/* x30, as it is or signed */
uintptr_t unwind_without_signature(uintptr_t address);

/* With the GIL: no lock is waited for to find tables.  Otherwise, as with glibc before 2.35,
   it is the dynamic linker's. */
int unwind_is_free(void);

#pragma GCC visibility pop
