#pragma once
/* The kernel's list of mappings, read without malloc(), and without the loader's locks. */

#include <stddef.h>
#include <stdint.h>

/* What somebody keeps of mappings, by address */
struct maps_range {
    uintptr_t start, end;
    int value;                  /* what it is kept for */
};

/* The one that holds the address, or NULL */
const struct maps_range *maps_find(const struct maps_range *ranges, int count,
                                   uintptr_t address);

struct mapping {
    uintptr_t start, end;
    int protection;             /* PROT_READ, ... */
    const char *file;           /* its path, or "": it is nobody's file */
};

/* Each of them, by address; none if it can't be read.  'text' is room of the caller's, of
   'size' bytes, which is more than a line has.  Changes errno. */
void maps_read(char *text, size_t size, void (*add)(const struct mapping *mapping));
