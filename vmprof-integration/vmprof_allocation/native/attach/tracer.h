#pragma once
/* Injection into another process: by ptrace, the attaching process stops a thread of the
   other process at a safe place (safe_place.h), and makes it create a new thread.
   remote/entry/tracer.py calls these functions, for one process at a time. */
#include <stdint.h>

/* The parameters and results of tracer_enter() */
struct tracer_request {
    int32_t pid, tid;
    /* time to wait for a safe place */
    int32_t milliseconds;
    /* whether the thread may be stopped in PyPy's code, and not only at a system call */
    int32_t is_code_allowed;
    /* addresses in the other process of the functions in struct frame; libc and libpypy
       must be the same files there as in this process */
    uint64_t create, self, detach, sleep, unmap, errno_location;
    uint64_t allocate, ensure, release, run;
    /* addresses of `create` and `allocate` in this process */
    uint64_t our_create, our_allocate;
    /* address of libc's syscall() in the other process */
    uint64_t syscall;
    /* Python program that the new thread runs */
    const char *program;
    /* Results: the program counter at the last stop that was no safe place, or 0; and
       whether the thread was stopped in PyPy's code, where it most likely has the GIL */
    uint64_t pc;
    int32_t is_in_code;
    int32_t unused;
};

/* Stop a thread at a safe place, and make it create another thread.  Returns 0 if the new
 * thread exists; the stopped thread then stays stopped until tracer_leave().  Otherwise
 * returns an errno, and the thread continues as before:
 *
 *    EAGAIN     the thread was at no safe place within the time
 *    ESRCH      the thread has ended
 *    ENOEXEC    the process runs another version of libc or libpypy
 *    ENOSYS     the kernel does not have PTRACE_GET_SYSCALL_INFO
 *    ENOTSUP    the thread has registers that stub.c cannot save, or a shadow stack
 *    E2BIG      the program is too long
 *    ETIMEDOUT  the thread did not stop in time, and may be traced until this process ends
 */
int tracer_enter(struct tracer_request *request);

/* Return whether the new thread has or had the GIL.  Also returns 1 if this is unknown,
   because the process has ended. */
int tracer_has_gil(void);

/* Make the holder of the GIL give it to the new thread at the next bytecode: store -1 in
   PyPy's ticker, which is at `ticker`, as a signal handler of PyPy does.  The interpreter
   then sets the ticker anew, so call this again until tracer_has_gil().  Returns 0 or an
   errno. */
int tracer_ask_for_gil(uint64_t ticker);

/* Let the stopped thread continue as before.  Returns 0 or an errno. */
int tracer_leave(void);
