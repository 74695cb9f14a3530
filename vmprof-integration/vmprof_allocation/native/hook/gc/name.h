#pragma once
/* A name that is put together from strings of the program's. */

#include <stddef.h>
#include <stdint.h>

#include "records.h"

struct name {
    char text[RECORD_MOST_TEXT];  /* the bytes that fit */
    size_t size;
    int is_cut;
    uint64_t key;               /* stands for all of them */
};

void name_clear(struct name *);

void name_add(struct name *, const char *bytes, size_t size);

/* The name is whole.  Python's strings may hold halves of characters, and one
   that was cut may end with some: make it UTF-8. */
void name_finish(struct name *);
