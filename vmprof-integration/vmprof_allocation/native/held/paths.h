#pragma once
/* The largest objects with a name, and the reference paths to them as a Python programmer
 * would write them.
 *
 * A path begins with a module, or with a function that is running.  It continues as an
 * expression does: shop.Registry.TABLE["eu"][3].items.  Steps that are no expression follow
 * an arrow, such as a variable of a closure: shop.price -> variable cache.
 */

#include <stdint.h>

#include "question.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* An object with a name: a chosen object or its owner */
struct called {
    uint64_t object;            /* address; 0 if there is no such object */
    struct text text;           /* path, 0x1f, type, then 0x1f and a path for each alias */
    size_t path;                /* size in bytes of the path at the beginning of 'text' */
    int aliases;                /* number of aliases */
};
/* An object that becomes a retainer */
struct chosen {
    struct called itself;
    struct called owner;        /* the previous object with a name on the path, if this
                                   object may be a retainer */
    int64_t bytes;              /* bytes that the first walk reached through the object */
};

/* Choose the objects with a name through which the first walk reached the most bytes.
   Returns how many were chosen, at most HELD_HOLDERS.  Needs walk_heap() before. */
int paths_choose(struct chosen chosen[HELD_HOLDERS]);

/* Store steps of paths in the result: first the steps of the paths to the queried objects,
   then the steps to all other named objects, as far as the result has room.  Each step
   leads to a named object, so a path ends at the last named object on the way to a queried
   object.  Call this function once after paths_choose(), before walk_forget_met(). */
void paths_tell(const struct held_question *, struct held_result *result);

#pragma GCC visibility pop
