#pragma once
/* The largest objects that have a name, and how a Python programmer would write it.
 *
 * A path begins with a module, or with a function that runs, and goes on as an expression
 * does: shop.Registry.TABLE["eu"][3].items.  What can't be written so stands behind an
 * arrow, such as a variable of a closure: shop.price -> variable cache.
 */

#include <stdint.h>

#include "question.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* One that is chosen, or an owner of one */
struct called {
    uint64_t object;            /* or 0 */
    struct text text;           /* path, 0x1f, type, and 0x1f and another path, ... */
    size_t path;                /* bytes of the first one */
    int aliases;
};
struct chosen {
    struct called itself;
    struct called owner;        /* the object before it on its path, if that may be chosen */
    int64_t bytes;              /* that were reached through it first */
};

/* After walk_heap(): choose at most HELD_HOLDERS of them.  Returns how many there are. */
int paths_choose(struct chosen chosen[HELD_HOLDERS]);

/* Then: write into 'result' the path to each object that is asked about, as far as what is
   on it has names, and is large enough to have one; and all other steps that have, as far
   as there is room. */
void paths_tell(const struct held_question *, struct held_result *result);

#pragma GCC visibility pop
