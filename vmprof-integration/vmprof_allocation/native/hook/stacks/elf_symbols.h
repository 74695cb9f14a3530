#pragma once
/* The functions that an ELF file names.
 *
 * Called when a profile ends, wherever that may be: it needs no memory of malloc's,
 * and files that are not what they should be name nothing. */

#include <stddef.h>
#include <stdint.h>

#define BUILD_ID_MOST   64

/* A note of the linker's that tells a file from all others */
struct build_id {
    unsigned char bytes[BUILD_ID_MOST];
    size_t size;                        /* 0: it has none */
};

/* Look for one among notes. */
int elf_symbols_find_id(const char *notes, size_t size, struct build_id *id);

/* Of a library that is loaded from 'start' to 'end', and whose addresses count from
   'base' on */
void elf_symbols_id_in_memory(uintptr_t start, uintptr_t end, uintptr_t base,
                              struct build_id *id);

/* Call 'each' for the functions that the file names, or the file with what was
   stripped from it: if they are of this build.  'value' is as the linker has it. */
void elf_symbols_read(const char *path, const struct build_id *id,
                      void (*each)(uintptr_t value, const char *name, void *argument),
                      void *argument);
