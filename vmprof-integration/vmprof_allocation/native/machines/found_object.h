#pragma once
/* glibc's _dl_find_object(), from 2.35 on: the library that holds an address, without a lock,
 * so that it may be asked while memory is asked for, and by a signal's handler. */

#include <link.h>

/* What glibc fills in; an older one's header doesn't have it. */
struct found_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *link_map;
    void *tables;               /* .eh_frame_hdr */
    unsigned long long reserved[7];
};

typedef int found_object_finder(void *, struct found_object *);

#define FOUND_OBJECT_FINDER     "_dl_find_object"

#pragma GCC visibility push(hidden)

/* NULL: there is none. */
found_object_finder *found_object_find_finder(void);

#pragma GCC visibility pop
