#pragma once
/* What an object is called: its type, and the step of a path that leads to it. */

#include <stdint.h>

#include "gc_types.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* From an object with a name to the next one: what is between has none. */
#define WAY_INSIDE  4
struct way {
    uint64_t owner, object;
    uint64_t before;            /* what has a name in front of the owner, or 0 */
    const struct gc_type *type; /* of the owner */
    int is_module;              /* the owner is a module's dict */
    uint64_t first;             /* what the owner refers to */
    uint64_t inside[WAY_INSIDE];    /* what refers to the object, what to that, ...; then
                                       the owner, and 0, as far as there is room */
};

/* Append what the way is called, as in ".items" or "[3]"; what is no expression stands
   behind an arrow.  Returns 0 if there is no name for it. */
int name_step(struct text *, const struct way *);

/* "in FUNCTION() FILE:LINE", of a frame */
void name_frame(struct text *, uint64_t frame);

/* Of any object */
void name_type(struct text *, uint64_t object);

#pragma GCC visibility pop
