#pragma once
/* Which word a function reads, from its instructions */

#include <stdint.h>

#define HANDLER_LOOK    8       /* bytes that are looked at, at most */

#pragma GCC visibility push(hidden)

/* The word of four bytes that the instructions 'code' read, or that they have a function
   return which does nothing else; 'address' is where they stand.  0: they do not. */
uintptr_t handler_word(const unsigned char code[HANDLER_LOOK], uintptr_t address);

#pragma GCC visibility pop
