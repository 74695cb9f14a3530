#pragma once
/* Unwinds the machine stack of the calling thread by the tables in .eh_frame.
 *
 * libgcc's unwinder cannot be used: it begins at its caller, and stops at the JIT's code,
 * which has no table.  libpypy has no frame pointers on AArch64.
 *
 * The functions change nothing on the stack.  If unwind_is_free() returns true, they also
 * wait for no lock, and a signal handler may call them.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A frame: the address at which its function continues, the stack pointer there, and
   x29, which some functions use as frame pointer.  If a signal has interrupted the frame
   ('is_interrupted'), 'pc' is the interrupted instruction, and 'lr' is x30, which the
   function may not have saved yet. */
struct unwound {
    uintptr_t pc, sp, fp;
    uintptr_t lr;
    int is_interrupted;
};

/* A rule to find the caller of a frame whose function is at the address 'pc' */
struct unwind_rule {
    uintptr_t pc;
    int is_known;
    int is_signed;              /* whether the return address is signed, with the stack
                                   pointer of this frame */
    uint32_t cfa_register;      /* SP or FP: the caller's stack pointer (CFA) is ... */
    int32_t cfa_offset;         /* ... the value of this register plus this offset */
    int32_t lr, fp;             /* offsets from the CFA of the saved x30 and x29, or
                                   UNWIND_NOT_SAVED */
};
#define UNWIND_NOT_SAVED    INT32_MIN

#define UNWIND_RULES    4096    /* number of addresses whose rule is cached; a power of
                                   two */

/* A cache of rules for one user at a time; all zero at first */
struct unwind_rules {
    struct unwind_rule at[UNWIND_RULES];
};

/* Replace a frame by its caller.  Returns 0, and leaves the frame unchanged, if no table
   describes how to find the caller, or if the caller's stack pointer exceeds 'limit'. */
int unwind_step(struct unwind_rules *rules, struct unwound *frame, uintptr_t limit);

/* Remove the signature from a return address.  An address without a signature stays the
   same. */
uintptr_t unwind_without_signature(uintptr_t address);

/* Return whether the search for a table takes no lock.  With glibc before 2.35, the search
   takes a lock of the dynamic linker.  Call this function with the GIL. */
int unwind_is_free(void);

#pragma GCC visibility pop
