#pragma once
/* Who has asked for memory: the library that holds the return address of the call.
 *
 * The loader's own functions can't be asked while memory is asked for: a thread that
 * loads a library asks for memory, too, with the loader's locks.  So it is the kernel's
 * list of mappings that tells, and it is read when an address is in none that is known.
 * (A library that has taken the place of another one since then is taken for that.)
 *
 * One thread at a time.
 */

#include <stdint.h>

/* What calls such as malloc()'s from this address are called in the profile: the number of
   a type; 0: not known. */
int64_t callers_type(uintptr_t return_address);

/* The name of such a type, or NULL if it has none, or this profile was told. */
const char *callers_untold_name(int64_t type);

/* Another profile begins, which was told nothing. */
void callers_begin_part(void);
