#pragma once
/* Where a stopped thread holds no lock that pthread_create() needs. */
#include <stdbool.h>
#include <sys/types.h>

#include "registers.h"

/* A thread that has just been in a system call, and whose registers these are: true
   if neither malloc nor the loader makes such calls, nor a handler that may have
   interrupted them. */
bool is_safe_place(pid_t pid, pid_t tid, const struct registers *registers);

/* Return whether a thread that was interrupted outside of system calls executes code of
   PyPy at `pc`, and no signal handler.  This code is in the library that contains the
   function at `library`, or in memory of the JIT compiler.  Such a thread is neither in
   malloc nor in the loader: both are other libraries, and neither calls PyPy. */
bool is_safe_code(pid_t pid, pid_t tid, uint64_t pc, uint64_t library);
