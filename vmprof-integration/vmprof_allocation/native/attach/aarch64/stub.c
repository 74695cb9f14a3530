/* The code that a thread of the other process runs for ../tracer.c.  It creates a thread,
 * and then continues the interrupted code, even if the attaching process has ended.
 *
 * x19 is the address of the frame (../frame.h), and sp the end of a stack for this code.
 * The thread was at the end of a system call at which it does not hold malloc's lock
 * (../safe_place.c), the only lock that pthread_create() needs.  The parts of SVE's
 * registers that are not saved here are zero after any system call.  The new thread, and
 * not this one, takes the GIL and runs a Python program.  All signals are blocked, and stay
 * blocked in the new thread.
 *
 * x7 is saved here and not by the attaching process: at the stops of a system call the
 * kernel has its own value in x7, and restores the previous one even if another value was
 * written.
 */
#include "../stub.h"

#include "../frame.h"

#define TEXT(number) #number
#define VALUE(field) "#" TEXT(field)
/* a field of the frame, or the element `number` of an array of words in the frame */
#define AT(field) WORD(field, 0)
#define WORD(field, number) "[x19, #" TEXT(field) "+8*" TEXT(number) "]"
#define LINE(instruction) "\t" instruction "\n"
#define CALL(field) LINE("ldr x8, " AT(field)) LINE("blr x8")
/* rt_sigprocmask(SIG_SETMASK or SIG_BLOCK, x1, NULL, 8) */
#define SIGPROCMASK(how) \
    LINE("mov x8, #135") LINE("mov x0, #" how) LINE("mov x2, #0") \
    LINE("mov x3, #8") LINE("svc #0")
/* save (stp) or restore (ldp) the vector registers; x9 is then after them */
#define VECTORS(instruction) \
    LINE("mov x9, " VALUE(FRAME_VECTORS)) LINE("add x9, x19, x9") \
    LINE(instruction " q0, q1, [x9], #32") LINE(instruction " q2, q3, [x9], #32") \
    LINE(instruction " q4, q5, [x9], #32") LINE(instruction " q6, q7, [x9], #32") \
    LINE(instruction " q8, q9, [x9], #32") LINE(instruction " q10, q11, [x9], #32") \
    LINE(instruction " q12, q13, [x9], #32") LINE(instruction " q14, q15, [x9], #32") \
    LINE(instruction " q16, q17, [x9], #32") LINE(instruction " q18, q19, [x9], #32") \
    LINE(instruction " q20, q21, [x9], #32") LINE(instruction " q22, q23, [x9], #32") \
    LINE(instruction " q24, q25, [x9], #32") LINE(instruction " q26, q27, [x9], #32") \
    LINE(instruction " q28, q29, [x9], #32") LINE(instruction " q30, q31, [x9], #32")
#define PAIR(a, b) \
    LINE("ldp x" #a ", x" #b ", " WORD(FRAME_REGISTERS, a))
#define SYMBOL(name) LINE(".globl " name) LINE(".hidden " name) name ":\n"

__asm__(
    LINE(".pushsection .rodata")
    LINE(".balign 16")
    SYMBOL("stub_begin")
    LINE("str x7, " WORD(FRAME_REGISTERS, 7))
    VECTORS("stp")
    LINE("mrs x10, fpcr")
    LINE("mrs x11, fpsr")
    LINE("stp x10, x11, [x9]")
    CALL(FRAME_ERRNO_LOCATION)
    LINE("ldr w0, [x0]")
    LINE("str w0, " AT(FRAME_OLD_ERRNO))
    LINE("ldr x8, " AT(FRAME_ALLOCATE))
    LINE("cbz x8, 1f")
    LINE("blr x8")
    "1:\n"
    LINE("add x0, x19, " VALUE(FRAME_THREAD))
    LINE("mov x1, #0")
    LINE("adr x2, 3f")
    LINE("mov x3, x19")
    CALL(FRAME_CREATE)
    LINE("str w0, " AT(FRAME_RESULT))
    CALL(FRAME_ERRNO_LOCATION)
    LINE("ldr w1, " AT(FRAME_OLD_ERRNO))
    LINE("str w1, [x0]")
    VECTORS("ldp")
    LINE("ldp x10, x11, [x9]")
    LINE("msr fpcr, x10")
    LINE("msr fpsr, x11")
    /* a call without effect, after which the attaching process stops this thread */
    LINE("ldr x7, " WORD(FRAME_REGISTERS, 7))
    LINE("mov x1, #0")
    SIGPROCMASK("0")
    SYMBOL("stub_marker")
    /* This code runs only if the attaching process has ended.  It restores all registers
       except for x17, which has the address at which the thread was.  In three C libraries
       of Debian, no code after a system call reads x17. */
    LINE("add x1, x19, " VALUE(FRAME_MASK))
    SIGPROCMASK("2")
    LINE("ldr x9, " WORD(FRAME_REGISTERS, 33))
    LINE("msr nzcv, x9")
    LINE("ldr x9, " WORD(FRAME_REGISTERS, 31))
    LINE("mov sp, x9")
    PAIR(0, 1) PAIR(2, 3) PAIR(4, 5) PAIR(6, 7) PAIR(8, 9) PAIR(10, 11) PAIR(12, 13)
    PAIR(14, 15) PAIR(20, 21) PAIR(22, 23) PAIR(24, 25) PAIR(26, 27) PAIR(28, 29)
    LINE("ldr x16, " WORD(FRAME_REGISTERS, 16))
    LINE("ldr x18, " WORD(FRAME_REGISTERS, 18))
    LINE("ldr x30, " WORD(FRAME_REGISTERS, 30))
    LINE("ldr x19, " WORD(FRAME_REGISTERS, 19))
    LINE("ldr x17, stub_resume")
    /* ret and not br, because with BTI the target of br would need a landing pad */
    LINE("ret x17")

    /* the new thread */
    "3:\n"
    LINE("stp x29, x30, [sp, #-32]!")
    LINE("mov x29, sp")
    LINE("str x19, [sp, #16]")
    LINE("mov x19, x0")
    CALL(FRAME_SELF)
    CALL(FRAME_DETACH)
    CALL(FRAME_ENSURE)
    LINE("str w0, " AT(FRAME_STATE))
    LINE("mov w9, #1")
    LINE("str w9, " AT(FRAME_HAS_GIL))
    LINE("add x0, x19, " VALUE(FRAME_PROGRAM))
    CALL(FRAME_RUN)
    LINE("ldr w0, " AT(FRAME_STATE))
    CALL(FRAME_RELEASE)
    "4:\n"
    LINE("ldr w9, " AT(FRAME_IS_LEFT))
    LINE("cbnz w9, 5f")
    LINE("mov w0, #10000")      /* microseconds */
    CALL(FRAME_SLEEP)
    LINE("ldr w9, " AT(FRAME_LOOKS))
    LINE("subs w9, w9, #1")
    LINE("str w9, " AT(FRAME_LOOKS))
    LINE("b.pl 4b")
    LINE("mov x0, #0")
    LINE("ldr x19, [sp, #16]")
    LINE("ldp x29, x30, [sp], #32")
    LINE("ret")
    "5:\n"
    LINE("ldr x0, " AT(FRAME_MEMORY))
    LINE("ldr x1, " AT(FRAME_MEMORY_SIZE))
    LINE("ldr x16, " AT(FRAME_UNMAP))
    LINE("ldr x19, [sp, #16]")
    LINE("ldp x29, x30, [sp], #32")
    /* munmap() returns to the caller of this function, and not to the unmapped page */
    LINE("br x16")
    LINE(".balign 8")
    SYMBOL("stub_resume")
    LINE(".quad 0")
    SYMBOL("stub_end")
    LINE(".popsection"));
