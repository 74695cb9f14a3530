#pragma once
/* A part of the library that holds an address, as its program headers have it */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The segment of this kind (PT_...) of the library that holds 'code', and its size.  NULL:
   it has none, or no library is there. */
const unsigned char *segment_find(uintptr_t code, uint32_t kind, size_t *size);

#pragma GCC visibility pop
