#pragma once
/* Finds the word in memory that a function loads, by its instructions.  In this way,
   hook/vmprof/vmprof_file.c finds the variable with the descriptor of vmprof's output in
   the code of vmprof's signal handler. */

#include <stdint.h>

#define HANDLER_LOOK    8       /* size in bytes of the instructions that are examined */

#pragma GCC visibility push(hidden)

/* Return the address of the 4-byte word that the instructions 'code' at 'address' load.
   The instructions may also call a function that only loads and returns the word.
   Returns 0 for other instructions. */
uintptr_t handler_word(const unsigned char code[HANDLER_LOOK], uintptr_t address);

#pragma GCC visibility pop
