#pragma once
/* The kernel's list of mappings (/proc/self/maps), read without malloc() and without the
   dynamic linker's locks. */

#include <stddef.h>
#include <stdint.h>

/* A range of addresses in a sorted array that a user of this file builds */
struct maps_range {
    uintptr_t start, end;
    int value;                  /* a value whose meaning the user of this file defines */
};

/* Return the range that contains an address, or NULL. */
const struct maps_range *maps_find(const struct maps_range *ranges, int count,
                                   uintptr_t address);

/* A mapping, as a line of the list describes it */
struct mapping {
    uintptr_t start, end;
    int protection;             /* bits PROT_READ, PROT_WRITE and PROT_EXEC */
    const char *file;           /* path of the file, or "" for a mapping without a file */
};

/* Call add() for each mapping, in the order of addresses.  Does nothing if the list
   cannot be read.  'text' is a buffer of 'size' bytes, which must be longer than a line.
   Changes errno. */
void maps_read(char *text, size_t size, void (*add)(const struct mapping *mapping));
