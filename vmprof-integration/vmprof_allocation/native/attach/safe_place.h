#pragma once
/* Decides whether a stopped thread is at a safe place, at which it can be made to call
   pthread_create(): the thread must not hold a lock that this function needs. */
#include <stdbool.h>
#include <sys/types.h>

#include "registers.h"

/* Return whether a thread is at a safe place at the end of the system call that
   `registers` contains.  The place is safe if neither malloc nor the dynamic linker makes
   such calls, nor a signal handler that may have interrupted malloc or the linker. */
bool is_safe_place(pid_t pid, pid_t tid, const struct registers *registers);

/* Return whether a thread executes code of PyPy, and no signal handler, after it was
   interrupted at `pc` outside of system calls.  Code of PyPy is in the library that
   contains the function at `library`, or in memory of the JIT compiler.  Such a thread is
   neither in malloc nor in the dynamic linker: both are other libraries, and neither calls
   PyPy. */
bool is_safe_code(pid_t pid, pid_t tid, uint64_t pc, uint64_t library);
