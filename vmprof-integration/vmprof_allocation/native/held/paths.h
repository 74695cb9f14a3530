#pragma once
/* The largest objects that have a name, and how a Python programmer would write it.
 *
 * A path begins with a module, or with a function that runs, and goes on as an expression
 * does: shop.Registry.TABLE["eu"][3].items.  What can't be written so stands behind an
 * arrow, such as a variable of a closure: shop.price -> variable cache.
 */

#include <stdint.h>

#include "question.h"

#pragma GCC visibility push(hidden)

/* After walk_heap(): choose at most HELD_HOLDERS of them, write their texts into
   'result', and their addresses into 'holders'.  Returns how many there are. */
int paths_choose(struct held_result *result, uint64_t holders[HELD_HOLDERS]);

/* Then: write into 'result' the path to each object that is asked about, as far as what is
   on it has names, and is large enough to have one; and all other steps that have, as far
   as there is room. */
void paths_tell(const struct held_question *, struct held_result *result);

#pragma GCC visibility pop
