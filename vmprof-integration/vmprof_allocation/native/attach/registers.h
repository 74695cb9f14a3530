#pragma once
/* A stopped thread, as far as it is another one on each processor: its registers, and
   the system call that it was in.  Each MACHINE/registers.c answers the same. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "frame.h"

struct registers {
    struct user_regs_struct user;
    /* the call, and its first arguments; negative: none, or that is not known */
    int64_t number;
    uint64_t first, second;
};

/* of the kernel, for a system call that is to be made again; user space sees none */
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

/* False: such a call is seen as it ends; true: by the stop that comes next. */
extern const bool registers_tell_later;
/* The kernel has the first argument of a call that is made again from the last call
   that was made, and not from a register. */
extern const bool registers_lack_first;

/* 0, or an errno: threads of this process, or of that machine, can't be made to run
   stub.c. */
int registers_check(pid_t tid);

/* False: errno says why.  To be called at each stop: a system call's end does not tell
   all of how it began. */
bool registers_read(pid_t tid, struct registers *registers);
bool registers_write(pid_t tid, const struct registers *registers);

uint64_t registers_pc(const struct registers *registers);
/* Of the system call that ended. */
int64_t registers_result(const struct registers *registers);
/* Its instruction is the one before the program counter. */
bool registers_are_behind_call(pid_t tid, const struct registers *registers);
/* The kernel is not to see the end of a call in these. */
void registers_forget(struct registers *registers);
/* If the thread was interrupted outside of system calls, change `registers` so that
   registers_call() makes a system call by the instruction in libc's syscall(), which is
   at `function`.  Return false if the thread is in a system call, or if that is unknown
   on this machine. */
bool registers_borrow_call(pid_t tid, struct registers *registers, uint64_t function);

/* What follows changes registers that are behind a call. */

/* What the kernel does when no handler comes between. */
void registers_make_again(struct registers *registers);
/* Another call, by the same instruction. */
void registers_call(struct registers *registers, long number,
                    const uint64_t arguments[6]);
/* To be at `code`, with what stub.c wants. */
void registers_enter(struct registers *registers, uint64_t code, uint64_t frame,
                     uint64_t stack);
/* Those that stub.c puts back, as it has them. */
void registers_save(const struct registers *registers, uint64_t *saved);
