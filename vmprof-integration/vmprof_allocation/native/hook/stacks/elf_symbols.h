#pragma once
/* The functions that the symbol tables of an ELF file name, for native_names.c.
 *
 * These functions run when a profile ends, whatever the process is doing then.  Therefore,
 * they do not call malloc().  An invalid file names no functions.
 */

#include <stddef.h>
#include <stdint.h>

#define BUILD_ID_MOST   64

/* The build ID, a note of the linker that identifies a file. */
struct build_id {
    unsigned char bytes[BUILD_ID_MOST];
    size_t size;                        /* 0 if the file has no build ID */
};

/* Find the build ID in 'notes', a note section of an ELF file.  Returns 1 if it was
   found, otherwise 0. */
int elf_symbols_find_id(const char *notes, size_t size, struct build_id *id);

/* Read the build ID of a library that is loaded from 'start' to 'end'.  An address in
   memory is 'base' plus the address in the library's file. */
void elf_symbols_id_in_memory(uintptr_t start, uintptr_t end, uintptr_t base,
                              struct build_id *id);

/* Call 'each' for every function in the symbol tables of the file 'path', or of its
   separate debug file.  Files of another build are ignored.  'value' is the symbol's
   address in the file, without the library's base. */
void elf_symbols_read(const char *path, const struct build_id *id,
                      void (*each)(uintptr_t value, const char *name, void *argument),
                      void *argument);
