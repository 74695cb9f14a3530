#pragma once
/* A name that is composed of strings of the program, as gc/types.c and others write it. */

#include <stddef.h>
#include <stdint.h>

#include "records.h"

struct name {
    char text[RECORD_MOST_TEXT];  /* the bytes that fit */
    size_t size;
    int is_cut;
    uint64_t key;               /* hash of all bytes, including the bytes that do not fit */
};

/* Make the name empty. */
void name_clear(struct name *);

/* Append 'size' bytes. */
void name_add(struct name *, const char *bytes, size_t size);

/* Complete the name: mark a cut name by "...", and make it valid UTF-8.  Python's strings
   may contain surrogates, and a cut string may end within a character. */
void name_finish(struct name *);
