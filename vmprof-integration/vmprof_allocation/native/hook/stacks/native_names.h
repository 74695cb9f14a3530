#pragma once
/* The names of the functions in native frames.
 *
 * When a function is first sampled, the profile gets the name of its library and the
 * function's offset there.  Both can be found at once, without a lock, while the library
 * is loaded.  The symbol, which is the function's real name, is in the library's file.
 * This file is read when the profile ends or is rotated, and never while a sample is
 * taken.  The symbol then replaces the offset, which stays if the process is killed.
 *
 * The caller of these functions has the recorder's lock, except for native_names_begin()
 * and native_names_end().
 */

#include <stddef.h>
#include <stdint.h>

/* Return the number that represents this function in stacks.  It is odd, because vmprof's
   numbers are even. */
static inline uintptr_t native_names_number(uintptr_t function)
{
    return function | 1;
}

/* Begin a run, in which no function is known yet.  Returns 0 or an errno. */
int native_names_begin(void);
/* Give the memory of native_names_begin() back.  The other functions then do nothing. */
void native_names_end(void);

/* Name the functions of a stack that is new in the profile. */
void native_names_tell(const uintptr_t *functions, size_t count);

/* Write the symbols at the end of a profile, and keep them for the next profiles
   (code_names.h). */
void native_names_finish(void);
/* Begin another profile, which has no names yet, in this process or in a forked child. */
void native_names_begin_next(void);
