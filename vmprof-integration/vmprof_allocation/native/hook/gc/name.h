#pragma once
/* A name for the profile, composed of strings of the program.  gc/types.c composes the name
   of a class, for example. */

#include <stddef.h>
#include <stdint.h>

#include "records.h"

struct name {
    char text[RECORD_MOST_TEXT];  /* the first bytes of the name */
    size_t size;                /* number of bytes in 'text' */
    int is_cut;                 /* whether 'text' has no room for all bytes of the name */
    uint64_t key;               /* hash of all bytes, including the bytes that do not fit */
};

/* Make the name empty. */
void name_clear(struct name *);

/* Append 'size' bytes to the name. */
void name_add(struct name *, const char *bytes, size_t size);

/* Complete the name: mark a cut name by "...", and make it valid UTF-8.  Python's strings
   may contain surrogates, and a cut string may end within a character. */
void name_finish(struct name *);
