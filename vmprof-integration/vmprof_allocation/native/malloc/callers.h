#pragma once
/* The type of a block of native memory: the library that contains the return address of the
 * call, as in "malloc (libsqlite3.so.0)".
 *
 * The dynamic linker's functions cannot be called during an allocation: a thread that loads
 * a library also allocates, with the linker's locks held.  So the library is found in a
 * copy of the kernel's list of mappings.  The list is read again if an address is in no
 * known mapping.  If a library is unloaded and another library is loaded at the same
 * addresses, the calls of the new library are attributed to the old one.
 *
 * The caller holds the lock of raw_memory.c.
 */

#include <stdint.h>

/* Return the number of the type for a call with this return address, or 0 if the library is
   unknown. */
int64_t callers_type(uintptr_t return_address);

/* Return the name of a type from callers_type() if the present profile does not have the
   name yet, and note that the profile has it now.  Otherwise, and for a type without a
   name, returns NULL. */
const char *callers_untold_name(int64_t type);

/* Begin another profile, which has no names of types yet. */
void callers_begin_part(void);
