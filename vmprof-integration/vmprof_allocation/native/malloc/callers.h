#pragma once
/* The type of a block of native memory: the library that contains the return address of the
 * call, as in "malloc (libsqlite3.so.0)".
 *
 * The dynamic linker's functions cannot be called during an allocation: a thread that loads
 * a library also allocates, with the linker's locks held.  So the kernel's list of mappings
 * is used, and read again if an address is in no known mapping.  If a library is unloaded
 * and another one takes its addresses, its calls are attributed to the old library.
 *
 * The caller holds the lock of raw_memory.c.
 */

#include <stdint.h>

/* Return the number of the type for a call with this return address, or 0 if it is
   unknown. */
int64_t callers_type(uintptr_t return_address);

/* Return the name of a type from callers_type(), for the first call of a profile.
   Returns NULL if the profile has the name, or if the type has no name. */
const char *callers_untold_name(int64_t type);

/* Begin another profile, which has no names yet. */
void callers_begin_part(void);
