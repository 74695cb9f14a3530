#pragma once
/* glibc's _dl_find_object(), which finds the library that contains an address.  glibc 2.35
   and later versions have this function.  It takes no lock, so it may be called during an
   allocation, and by a signal handler. */

#include <link.h>

/* The result of _dl_find_object(), which the headers of older glibc versions do not
   define */
struct found_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *link_map;
    void *tables;               /* address of .eh_frame_hdr */
    unsigned long long reserved[7];
};

typedef int found_object_finder(void *, struct found_object *);

#define FOUND_OBJECT_FINDER     "_dl_find_object"

#pragma GCC visibility push(hidden)

/* Return the address of _dl_find_object(), or NULL if libc does not have it. */
found_object_finder *found_object_find_finder(void);

#pragma GCC visibility pop
