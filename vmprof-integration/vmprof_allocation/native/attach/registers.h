#pragma once
/* The registers and the present system call of a stopped thread.  Each
   MACHINE/registers.c implements these functions for a processor. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "frame.h"

/* The registers of a stopped thread */
struct registers {
    struct user_regs_struct user;
    /* number of the system call that the thread is in, and the call's first two arguments;
       the number is negative if the thread is in no system call, or if the call is
       unknown */
    int64_t number;
    uint64_t first, second;
};

/* Results of a system call that the kernel will make again.  A tracer can see these
   results, but the program never gets them. */
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

/* Whether a system call that the kernel will make again is recognized at the stop after
   its end (true), or at its end (false) */
extern const bool registers_tell_later;
/* Whether the kernel takes the first argument of a call that it makes again from the
   thread's last call, and not from a register */
extern const bool registers_lack_first;

/* Return 0, or an errno if stub.c cannot run in the thread `tid` or on this machine. */
int registers_check(pid_t tid);

/* Read the registers of a stopped thread, or write them.  Return false, and set errno,
   if that fails.  registers_read() must be called at each stop, because the end of a
   system call does not show everything about its beginning. */
bool registers_read(pid_t tid, struct registers *registers);
bool registers_write(pid_t tid, const struct registers *registers);

/* Return the program counter. */
uint64_t registers_pc(const struct registers *registers);
/* Return the result of the system call that has ended. */
int64_t registers_result(const struct registers *registers);
/* Return whether the instruction before the program counter is a system call. */
bool registers_are_behind_call(pid_t tid, const struct registers *registers);
/* Mark `registers` as outside of a system call, so that a thread that continues with these
   registers does not make a call again. */
void registers_forget(struct registers *registers);
/* If the thread was interrupted outside of system calls, change `registers` so that
   registers_call() makes a system call by the instruction in libc's syscall(), which is
   at `function`.  Return false if the thread is in a system call, if the instruction was
   not found, or if the stub cannot continue such a thread on this machine. */
bool registers_borrow_call(pid_t tid, struct registers *registers, uint64_t function);

/* The following functions change the registers of a thread whose program counter is
   after a system call's instruction. */

/* Make the system call again, as the kernel does if no signal handler runs before. */
void registers_make_again(struct registers *registers);
/* Make another system call by the same instruction. */
void registers_call(struct registers *registers, long number,
                    const uint64_t arguments[6]);
/* Continue at the address `code`, with the addresses of the frame and of the stack's end
   in the registers in which stub.c expects them. */
void registers_enter(struct registers *registers, uint64_t code, uint64_t frame,
                     uint64_t stack);
/* Store the registers that stub.c restores in `saved`, in stub.c's order. */
void registers_save(const struct registers *registers, uint64_t *saved);
