#pragma once
/* Reads of memory that may not be mapped: a word on the stack that is taken for an
   address may have any value. */

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#pragma GCC visibility push(hidden)

/* Copy 'size' bytes, from at most two pages.  Returns 0 if some of them are not mapped. */
int guarded_read(uintptr_t address, void *buffer, size_t size);

/* Copy 'count' ranges of memory to 'count' buffers of the same sizes.  Returns 0 if some
   bytes are not mapped. */
int guarded_read_places(const struct iovec *from, const struct iovec *to, int count);

/* Note that the page that contains this address has code of the JIT.  Such a page is never
   unmapped, so guarded_read() reads it from now on without a system call. */
void guarded_is_mapped(uintptr_t address);

#pragma GCC visibility pop
