#pragma once
/* Where a stopped thread holds no lock that pthread_create() needs. */
#include <stdbool.h>
#include <sys/types.h>

#include "registers.h"

/* A thread that has just been in a system call, and whose registers these are: true
   if neither malloc nor the loader makes such calls, nor a handler that may have
   interrupted them. */
bool is_safe_place(pid_t pid, pid_t tid, const struct registers *registers);
