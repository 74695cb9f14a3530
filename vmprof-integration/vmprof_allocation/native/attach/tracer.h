#pragma once
/* The attaching process's side: stop one thread of another process where that is
   safe, and have it make a thread there. */
#include <stdint.h>

struct tracer_request {
    int32_t pid, tid;
    /* how long to wait for a safe place */
    int32_t milliseconds;
    /* whether the thread may be stopped in PyPy's code, and not only at a system call */
    int32_t is_code_allowed;
    /* addresses in the other process, whose libc and libpypy are the same files as
       ours (see frame.h); and in ours */
    uint64_t create, self, detach, sleep, unmap, errno_location;
    uint64_t allocate, ensure, release, run;
    uint64_t our_create, our_allocate;
    /* libc's syscall() in the other process */
    uint64_t syscall;
    /* what the new thread has Python run */
    const char *program;
    /* Results: the address of the instruction at which the last unsafe stop was, or 0;
       and whether the thread was stopped in PyPy's code.  There, the thread most likely
       has the GIL. */
    uint64_t pc;
    int32_t is_in_code;
    int32_t unused;
};

/* Returns 0: the thread has made the other one, and stands still until
   tracer_leave().  EAGAIN: it was at no safe place in that time.  ESRCH: it is gone.
   ENOEXEC: it runs something else.  ENOSYS: there is no PTRACE_GET_SYSCALL_INFO.
   ENOTSUP: a thread has more than what is kept here.
   E2BIG: the program is too long.  Or another errno.  Unless 0, the thread was let go
   as it was. */
int tracer_enter(struct tracer_request *request);

/* The new thread has the GIL, or had it, as far as the process is still there. */
int tracer_has_gil(void);

/* Make the holder of the GIL give it to the new thread at the next bytecode: store -1 in
   PyPy's ticker, which is at `ticker`, as a signal handler of PyPy does.  The interpreter
   then sets the ticker anew, so call this again until tracer_has_gil().  Returns 0 or an
   errno. */
int tracer_ask_for_gil(uint64_t ticker);

/* Let the stopped thread go on as if nothing had been.  Returns 0 or an errno. */
int tracer_leave(void);
