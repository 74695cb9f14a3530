#pragma once
/* Reading memory that may not be there: an address that was found on the stack may lead
   anywhere. */

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#pragma GCC visibility push(hidden)

/* Copy 'size' bytes, of no more than two pages.  Returns 0 if they are not there. */
int guarded_read(uintptr_t address, void *buffer, size_t size);

/* Copy from some places to as many others, of the same sizes.  Returns 0 if not all of it is
   there. */
int guarded_read_places(const struct iovec *from, const struct iovec *to, int count);

/* Code of the JIT's is there: its page stays mapped, and is read from now on without asking
   the kernel. */
void guarded_is_mapped(uintptr_t address);

#pragma GCC visibility pop
