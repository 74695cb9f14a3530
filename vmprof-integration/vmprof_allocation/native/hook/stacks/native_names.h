#pragma once
/* What the functions of native frames are called.
 *
 * When one is first met, the profile learns its library, and where in it the
 * function begins: that is known at once, and without a lock, while the library is
 * still there.  What it is called stands in files, and these are read when the
 * profile ends, or the next one begins: never while a sample is taken.  The later
 * name replaces the earlier one, which stays if the process was killed.
 *
 * All of it with the recorder's lock, but begin and end. */

#include <stddef.h>
#include <stdint.h>

/* What stands for this function in stacks: vmprof's numbers are even. */
static inline uintptr_t native_names_number(uintptr_t function)
{
    return function | 1;
}

/* A run begins, and knows no functions.  Returns 0 or an errno. */
int native_names_begin(void);
/* Give the memory back; the rest is harmless then. */
void native_names_end(void);

/* These functions are in a stack that is new in the profile. */
void native_names_tell(const uintptr_t *functions, size_t count);

/* The profile ends: write what they are called, and have code_names.h keep it for
   those that follow. */
void native_names_finish(void);
/* It was another one's, or its parent's, and the present one knows nothing yet. */
void native_names_begin_next(void);
