/* The code that a thread of the other process runs for ../tracer.c.  It creates a thread,
 * and then continues the interrupted code, even if the attaching process has ended.
 *
 * rbx is the address of the frame (../frame.h), and rsp the end of a stack for this code.
 * The thread was at the end of a system call, or in PyPy's code, where it does not hold
 * malloc's lock (../safe_place.c), the only lock that pthread_create() needs.  The new
 * thread, and not this one, takes the GIL and runs a Python program.  All signals are
 * blocked, and stay blocked in the new thread.
 */
#include "../stub.h"

#include "../frame.h"

#define TEXT(number) #number
/* a field of the frame, or the element `number` of an array of words in the frame */
#define AT(field) WORD(field, 0)
#define WORD(field, number) TEXT(field) "+8*" TEXT(number) "(%rbx)"
#define LINE(instruction) "\t" instruction "\n"
/* rt_sigprocmask(SIG_SETMASK or SIG_BLOCK, rsi, NULL, 8) */
#define SIGPROCMASK(how) \
    LINE("mov $14, %eax") LINE("mov $" how ", %edi") LINE("xor %edx, %edx") \
    LINE("mov $8, %r10d") LINE("syscall")
#define ALL_STATES LINE("mov $-1, %eax") LINE("mov $-1, %edx")
#define SYMBOL(name) LINE(".globl " name) LINE(".hidden " name) name ":\n"

__asm__(
    LINE(".pushsection .rodata")
    LINE(".balign 16")
    SYMBOL("stub_begin")
    LINE("cld")
    ALL_STATES
    LINE("xsave64 " AT(FRAME_VECTORS))
    LINE("call *" AT(FRAME_ERRNO_LOCATION))
    LINE("mov (%rax), %eax")
    LINE("mov %eax, " AT(FRAME_OLD_ERRNO))
    LINE("mov " AT(FRAME_ALLOCATE) ", %rax")
    LINE("test %rax, %rax")
    LINE("jz 1f")
    LINE("call *%rax")
    "1:\n"
    LINE("lea " AT(FRAME_THREAD) ", %rdi")
    LINE("xor %esi, %esi")
    LINE("lea 3f(%rip), %rdx")
    LINE("mov %rbx, %rcx")
    LINE("call *" AT(FRAME_CREATE))
    LINE("mov %eax, " AT(FRAME_RESULT))
    LINE("call *" AT(FRAME_ERRNO_LOCATION))
    LINE("mov " AT(FRAME_OLD_ERRNO) ", %ecx")
    LINE("mov %ecx, (%rax)")
    ALL_STATES
    LINE("xrstor64 " AT(FRAME_VECTORS))
    /* a call without effect, after which the attaching process stops this thread */
    LINE("xor %esi, %esi")
    SIGPROCMASK("0")
    SYMBOL("stub_marker")
    /* this code runs only if the attaching process has ended, and restores all registers */
    LINE("lea " AT(FRAME_MASK) ", %rsi")
    SIGPROCMASK("2")
    LINE("mov " WORD(FRAME_REGISTERS, 0) ", %r15")
    LINE("mov " WORD(FRAME_REGISTERS, 1) ", %r14")
    LINE("mov " WORD(FRAME_REGISTERS, 2) ", %r13")
    LINE("mov " WORD(FRAME_REGISTERS, 3) ", %r12")
    LINE("mov " WORD(FRAME_REGISTERS, 4) ", %rbp")
    LINE("mov " WORD(FRAME_REGISTERS, 6) ", %r11")
    LINE("mov " WORD(FRAME_REGISTERS, 7) ", %r10")
    LINE("mov " WORD(FRAME_REGISTERS, 8) ", %r9")
    LINE("mov " WORD(FRAME_REGISTERS, 9) ", %r8")
    LINE("mov " WORD(FRAME_REGISTERS, 10) ", %rax")
    LINE("mov " WORD(FRAME_REGISTERS, 11) ", %rcx")
    LINE("mov " WORD(FRAME_REGISTERS, 12) ", %rdx")
    LINE("mov " WORD(FRAME_REGISTERS, 13) ", %rsi")
    LINE("mov " WORD(FRAME_REGISTERS, 14) ", %rdi")
    LINE("pushq " WORD(FRAME_REGISTERS, 15))
    LINE("popfq")
    /* nothing may be pushed from here on: the red zone below rsp belongs to the program */
    LINE("mov " WORD(FRAME_REGISTERS, 16) ", %rsp")
    LINE("mov " WORD(FRAME_REGISTERS, 5) ", %rbx")
    LINE("jmp *stub_resume(%rip)")

    /* the new thread */
    "3:\n"
    LINE("push %rbx")
    LINE("mov %rdi, %rbx")
    LINE("call *" AT(FRAME_SELF))
    LINE("mov %rax, %rdi")
    LINE("call *" AT(FRAME_DETACH))
    LINE("call *" AT(FRAME_ENSURE))
    LINE("mov %eax, " AT(FRAME_STATE))
    LINE("movl $1, " AT(FRAME_HAS_GIL))
    LINE("lea " AT(FRAME_PROGRAM) ", %rdi")
    LINE("call *" AT(FRAME_RUN))
    LINE("mov " AT(FRAME_STATE) ", %edi")
    LINE("call *" AT(FRAME_RELEASE))
    "4:\n"
    LINE("cmpl $0, " AT(FRAME_IS_LEFT))
    LINE("jne 5f")
    LINE("mov $10000, %edi")    /* microseconds */
    LINE("call *" AT(FRAME_SLEEP))
    LINE("decl " AT(FRAME_LOOKS))
    LINE("jns 4b")
    LINE("xor %eax, %eax")
    LINE("pop %rbx")
    LINE("ret")
    "5:\n"
    LINE("mov " AT(FRAME_MEMORY) ", %rdi")
    LINE("mov " AT(FRAME_MEMORY_SIZE) ", %rsi")
    LINE("mov " AT(FRAME_UNMAP) ", %rax")
    LINE("pop %rbx")
    /* munmap() returns to the caller of this function, and not to the unmapped page */
    LINE("jmp *%rax")
    LINE(".balign 8")
    SYMBOL("stub_resume")
    LINE(".quad 0")
    SYMBOL("stub_end")
    LINE(".popsection"));
