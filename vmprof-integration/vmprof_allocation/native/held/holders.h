#pragma once
/* The second walk: find the objects that are reachable without each of the retainers, and
 * so the retained sizes.
 *
 * Each object has a word of bits.  Bit i is set if some path from the program's roots to
 * the object avoids retainer i.  If a path avoids all retainers, the object is *free*, and
 * is visited only once.  The walk passes the words along references until no word changes.
 * So the retained size of a single retainer is exact, whatever the retainers share.
 *
 * Several retainers keep an object *together* if each path passes through one of them, but
 * no single retainer is on all paths.  Such an object is added to one *group*: the set of
 * the retainers that are the last one on some path to the object.  Another set may retain
 * the same object, so the sum of a group is a lower bound.
 *
 * A retainer may retain far less than was reached through it.  It shares the rest with
 * another object, often with another part of the same object, as the dict and the linked
 * list of a cache do.  So the walk is repeated, and the retainer is replaced by its
 * *owner*: the previous object with a name on the reference path.
 *
 * A further walk finds the retained size of the instances of each class as if they were one
 * retainer.  This walk is separate, so that the sizes of the single retainers do not depend
 * on the classes.
 */

#include <stddef.h>
#include <stdint.h>

#include "paths.h"
#include "question.h"

#pragma GCC visibility push(hidden)

/* Find the retained sizes of the 'count' retainers in 'chosen', of their groups and of the
   chosen classes, and the retainers of each queried object.  Fills in 'holders' and
   'found' of the result.  Needs walk_heap() and classes_find() before, but not walk.met. */
void holders_weigh(const struct held_question *question, struct held_result *result,
                   const struct chosen *chosen, int count);

#pragma GCC visibility pop
