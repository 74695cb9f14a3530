#pragma once
/* The second walk: what can't be reached without each of the holders.
 *
 * Of each object a word says, bit by bit, without which holders it can be reached; if
 * without any, it is *free*, and looked at once.  The words grow along references until
 * nothing changes: so what they say is exact, whatever shares what.
 */

#include <stddef.h>
#include <stdint.h>

#include "question.h"

#pragma GCC visibility push(hidden)

/* After walk_heap(): fills in what each of the 'count' holders keeps, and groups of them,
   and how the objects in question are held. */
void holders_weigh(const struct held_question *question, struct held_result *result,
                   const uint64_t *holders, int count);

#pragma GCC visibility pop
