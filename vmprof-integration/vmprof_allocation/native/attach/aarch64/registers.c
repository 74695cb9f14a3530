/* The registers at the end of a system call do not show its first argument, because the
   result is in the same register, x0.  If the kernel makes a call again, it moves the
   program counter back before it reports the stop.  So registers_read() recognizes the end
   of a call only after another registers_read() at the beginning of the same call. */
#define _GNU_SOURCE
#include "../registers.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define CALL 0xd4000001u        /* svc #0 */
#define CALL_SIZE 4
/* the registers that contain the number of a system call and the address of the frame */
#define NUMBER 8
#define FRAME 19
/* missing in older headers */
#ifndef NT_ARM_GCS
#define NT_ARM_GCS 0x410
#endif
#define SHADOW_STACK 1

const bool registers_tell_later = false;
const bool registers_lack_first = true;

/* the system call that began last */
static struct {
    pid_t tid;
    uint64_t pc, number, first;
} begun;

static bool get(pid_t tid, uintptr_t kind, void *data, size_t size)
{
    struct iovec place = {data, size};
    return ptrace(PTRACE_GETREGSET, tid, kind, &place) == 0;
}

static bool set(pid_t tid, uintptr_t kind, void *data, size_t size)
{
    struct iovec place = {data, size};
    return ptrace(PTRACE_SETREGSET, tid, kind, &place) == 0;
}

int registers_check(pid_t tid)
{
    uint64_t features[3] = {0};
    return get(tid, NT_ARM_GCS, features, sizeof features)
           && features[0] & SHADOW_STACK ? ENOTSUP : 0;
}

bool registers_read(pid_t tid, struct registers *registers)
{
    struct __ptrace_syscall_info info;
    struct user_regs_struct *r = &registers->user;
    bool is_same;
    registers->number = -1;
    if (!get(tid, NT_PRSTATUS, r, sizeof *r)
            || ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) <= 0)
        return false;
    is_same = begun.tid == tid && begun.pc == r->pc && begun.number == r->regs[NUMBER];
    begun.tid = 0;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        begun.tid = tid;
        begun.pc = r->pc;
        begun.number = r->regs[NUMBER];
        begun.first = r->regs[0];
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && is_same) {
        registers->number = begun.number;
        registers->first = begun.first;
        registers->second = r->regs[1];
    }
    return true;
}

bool registers_write(pid_t tid, const struct registers *registers)
{
    struct user_regs_struct r = registers->user;
    int number = registers->number;
    return set(tid, NT_PRSTATUS, &r, sizeof r)
           && set(tid, NT_ARM_SYSTEM_CALL, &number, sizeof number);
}

uint64_t registers_pc(const struct registers *registers)
{
    return registers->user.pc;
}

int64_t registers_result(const struct registers *registers)
{
    return registers->user.regs[0];
}

bool registers_are_behind_call(pid_t tid, const struct registers *registers)
{
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, tid, registers->user.pc - CALL_SIZE, 0);
    return errno == 0 && (uint32_t)word == CALL;
}

void registers_forget(struct registers *registers)
{
    registers->number = -1;
}

/* The stub cannot restore all registers of a thread that was stopped between two arbitrary
   instructions, because the last jump needs one register. */
bool registers_borrow_call(pid_t tid, struct registers *registers, uint64_t function)
{
    (void)tid;
    (void)registers;
    (void)function;
    return false;
}

void registers_make_again(struct registers *registers)
{
    struct user_regs_struct *r = &registers->user;
    if (registers_result(registers) == -ERESTART_RESTARTBLOCK)
        r->regs[NUMBER] = SYS_restart_syscall;
    r->regs[0] = registers->first;
    r->pc -= CALL_SIZE;
}

void registers_call(struct registers *registers, long number,
                    const uint64_t arguments[6])
{
    struct user_regs_struct *r = &registers->user;
    memcpy(r->regs, arguments, 6 * sizeof *arguments);
    r->regs[NUMBER] = number;
    r->pc -= CALL_SIZE;
}

void registers_enter(struct registers *registers, uint64_t code, uint64_t frame,
                     uint64_t stack)
{
    registers->user.pc = code;
    registers->user.regs[FRAME] = frame;
    registers->user.sp = stack;
}

void registers_save(const struct registers *registers, uint64_t *saved)
{
    _Static_assert(sizeof registers->user <= sizeof ((struct frame *)0)->registers,
                   "all of them");
    memcpy(saved, &registers->user, sizeof registers->user);
}
