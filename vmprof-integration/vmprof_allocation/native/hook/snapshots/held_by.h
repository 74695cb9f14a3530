#pragma once
/* Has a forked process look who holds what is alive.
 *
 * The fork (bare_fork.h) is made where the heap is whole: with the GIL, between two
 * allocations.  Its stacks, of which the GC knows the references, are those of all threads.
 * It runs held/ alone, and what it finds goes into memory that both have.
 */

#include <stdint.h>

#include "hook.h"

void held_by_prepare(const struct hook_place *place);

/* Begin, with the GIL, between two allocations; hook_held() ends it.  Without
   'wants_holders', the process only finds the sampled objects that can be reached. */
void held_by_ask(uint64_t list, int wants_holders);

/* With the GIL, after hook_held().  If 'is_certain', unreachable objects are garbage: stop
   tracking them, and write the snapshot into the profile. */
void held_by_examined(int is_certain);

/* The profile ends: nobody needs the answer.  The child is gone then.  Keeps errno. */
void held_by_end(void);

/* The process ends, or becomes another program, whose child would be one that it does not
   know; or, if that is 0, it could not.  Keeps errno. */
void held_by_process_ends(int ends);

/* In a forked child: what was asked is its parent's. */
void held_by_forked(void);
