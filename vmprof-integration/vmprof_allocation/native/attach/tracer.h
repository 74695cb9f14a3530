#pragma once
/* The attaching process's side: stop one thread of another process where that is
   safe, and have it make a thread there. */
#include <stdint.h>

struct tracer_request {
    int32_t pid, tid;
    /* how long to wait for a safe place */
    int32_t milliseconds;
    int32_t unused;
    /* addresses in the other process, whose libc and libpypy are the same files as
       ours (see frame.h); and in ours */
    uint64_t create, self, detach, sleep, unmap, errno_location;
    uint64_t allocate, ensure, release, run;
    uint64_t our_create, our_allocate;
    /* what the new thread has Python run */
    const char *program;
};

/* Returns 0: the thread has made the other one, and stands still until
   tracer_leave().  EAGAIN: it was at no safe place in that time.  ESRCH: it is gone.
   ENOEXEC: it runs something else.  ENOSYS: there is no PTRACE_GET_SYSCALL_INFO.
   ENOTSUP: a thread has more than what is kept here.
   E2BIG: the program is too long.  Or another errno.  Unless 0, the thread was let go
   as it was. */
int tracer_enter(const struct tracer_request *request);

/* The new thread has the GIL, or had it, as far as the process is still there. */
int tracer_has_gil(void);

/* Let the stopped thread go on as if nothing had been.  Returns 0 or an errno. */
int tracer_leave(void);
