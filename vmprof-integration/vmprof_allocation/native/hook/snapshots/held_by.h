#pragma once
/* Heap snapshots: a forked process finds the retainers, or the reachable sampled objects.
 *
 * The process is forked (bare_fork.h) with the GIL between two allocations, when the heap
 * is consistent.  The list of roots that it gets covers the stacks of all threads.  It
 * only runs native/held, and stores the result in shared memory.  hook.h documents the
 * functions that Python calls.
 */

#include <stdint.h>

#include "hook.h"

/* Take the layout of objects from 'place'.  Call it once per process. */
void held_by_prepare(const struct hook_place *place);

/* Fork the process for a heap snapshot.  Call it with the GIL between two allocations;
   hook_held() takes the result.  'list' is the address of the list of roots.  If
   'wants_holders' is true, the process finds the retainers.  Otherwise, it only finds the
   reachable sampled objects. */
void held_by_ask(uint64_t list, int wants_holders);

/* Use the result of the snapshot, with the GIL after hook_held().  If 'is_certain' is true,
   unreachable objects are garbage.  They are recorded as ended, and the snapshot is
   written into the profile.  Otherwise, the result is discarded. */
void held_by_examined(int is_certain);

/* Kill the process of a snapshot, because the profile ends and the result is no longer
   needed.  Keeps errno. */
void held_by_end(void);

/* Kill the process of a snapshot, and allow no further one, because the program's process
   ends.  It may also execute another program, which would not know this child.  If 'ends'
   is 0, the program's process continues after all, and snapshots are allowed again.  Keeps
   errno. */
void held_by_process_ends(int ends);

/* Forget the parent's snapshot in a forked child. */
void held_by_forked(void);
