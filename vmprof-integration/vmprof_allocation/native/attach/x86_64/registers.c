#define _GNU_SOURCE
#include "../registers.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define CODE_64_BIT 0x33
#define CALL_SIZE 2             /* syscall */
#define CALL 0x050f
/* Number of bytes of libc's syscall() that are searched for the syscall instruction */
#define FUNCTION_SIZE 48

const bool registers_tell_later = true;
const bool registers_lack_first = false;

int registers_check(pid_t tid)
{
    unsigned a, b, c, d;
    (void)tid;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE
           && __get_cpuid_count(0xd, 0, &a, &b, &c, &d) && b <= FRAME_MAX_VECTORS
           ? 0 : ENOTSUP;
}

bool registers_read(pid_t tid, struct registers *registers)
{
    struct user_regs_struct *r = &registers->user;
    if (ptrace(PTRACE_GETREGS, tid, 0, r) < 0)
        return false;
    registers->number = r->cs == CODE_64_BIT ? (int64_t)r->orig_rax : -1;
    registers->first = r->rdi;
    registers->second = r->rsi;
    return true;
}

bool registers_write(pid_t tid, const struct registers *registers)
{
    return ptrace(PTRACE_SETREGS, tid, 0, &registers->user) == 0;
}

uint64_t registers_pc(const struct registers *registers)
{
    return registers->user.rip;
}

int64_t registers_result(const struct registers *registers)
{
    return (int64_t)registers->user.rax;
}

bool registers_are_behind_call(pid_t tid, const struct registers *registers)
{
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, tid, registers->user.rip - CALL_SIZE, 0);
    return errno == 0 && (word & 0xffff) == CALL;
}

void registers_forget(struct registers *registers)
{
    registers->user.orig_rax = -1;
}

bool registers_borrow_call(pid_t tid, struct registers *registers, uint64_t function)
{
    struct user_regs_struct *r = &registers->user;
    /* The kernel sets orig_rax to -1 if an interrupt or an exception stops user code. */
    if (r->cs != CODE_64_BIT || (int64_t)r->orig_rax >= 0)
        return false;
    for (uint64_t at = function; at < function + FUNCTION_SIZE; at++) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKTEXT, tid, at, 0);
        if (errno)
            return false;
        if ((word & 0xffff) == CALL) {
            r->rip = at + CALL_SIZE;
            return true;
        }
    }
    return false;
}

void registers_make_again(struct registers *registers)
{
    struct user_regs_struct *r = &registers->user;
    r->rax = (int64_t)r->rax == -ERESTART_RESTARTBLOCK ? SYS_restart_syscall
                                                       : r->orig_rax;
    r->rip -= CALL_SIZE;
}

void registers_call(struct registers *registers, long number,
                    const uint64_t arguments[6])
{
    struct user_regs_struct *r = &registers->user;
    r->rip -= CALL_SIZE;
    r->rax = number;
    r->rdi = arguments[0];
    r->rsi = arguments[1];
    r->rdx = arguments[2];
    r->r10 = arguments[3];
    r->r8 = arguments[4];
    r->r9 = arguments[5];
}

void registers_enter(struct registers *registers, uint64_t code, uint64_t frame,
                     uint64_t stack)
{
    registers->user.rip = code;
    registers->user.rbx = frame;
    registers->user.rsp = stack;
}

void registers_save(const struct registers *registers, uint64_t *saved)
{
    const struct user_regs_struct r = registers->user;
    uint64_t all[] = {r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10,
                      r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi, r.rdi, r.eflags,
                      r.rsp};
    _Static_assert(sizeof all <= sizeof ((struct frame *)0)->registers, "all of them");
    memcpy(saved, all, sizeof all);
}
