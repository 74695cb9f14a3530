#pragma once
/* Finds a segment of a library by an address in it and the library's program headers. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Return the address of the segment of a kind (PT_...) in the library that contains the
   address 'code', and store the size of the segment in bytes.  Returns NULL if the library
   has no such segment, or if no library contains the address. */
const unsigned char *segment_find(uintptr_t code, uint32_t kind, size_t *size);

#pragma GCC visibility pop
