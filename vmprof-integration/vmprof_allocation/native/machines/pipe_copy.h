#pragma once
/* Copying memory that may not be there, where the kernel may not let us read memory by
 * process_vm_readv() (guarded_read.h): a pipe refuses it politely. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Returns 0 or an errno. */
int pipe_copy_begin(void);
/* Returns 0 if not all of it is there. */
int pipe_copy(uintptr_t address, void *to, size_t size);
void pipe_copy_end(void);

#pragma GCC visibility pop
