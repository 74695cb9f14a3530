#pragma once
/* The second walk: what can't be reached without each of the holders.
 *
 * Of each object a word says, bit by bit, whether some path from what the program refers
 * to avoids this holder; if one avoids all, the object is *free*, and looked at once.  The
 * words grow along references until nothing changes: so what a single holder keeps is
 * exact, whatever shares what.  Holders keep something *together* if each path has one of
 * them, and none of them is on all: the set is of those that are last on some path.
 * Another set may do the same, so that the sum of a set is the least that it keeps.
 *
 * What holds far less than was reached through it shares that with something else: often
 * with another part of the same object, as the dict and the linked list of a cache do.  So
 * the object before it on its path is weighed in its place.
 *
 * All instances of a class are weighed likewise, as if they were one holder: in a walk of
 * their own, as what other holders keep is not to depend on them.
 */

#include <stddef.h>
#include <stdint.h>

#include "paths.h"
#include "question.h"

#pragma GCC visibility push(hidden)

/* After walk_heap() and classes_find(): fills in what each of the 'count' holders keeps,
   and groups of them, and classes; and how the objects in question are held. */
void holders_weigh(const struct held_question *question, struct held_result *result,
                   const struct chosen *chosen, int count);

#pragma GCC visibility pop
