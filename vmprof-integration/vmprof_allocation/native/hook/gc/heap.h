#pragma once
/* The GC's own counts of its heap, for the metrics of figures.h.
 *
 * The counts are words of libpypy's data at constant addresses, which
 * discovery/process.py has checked.  A reader follows no pointer, and needs no GIL.
 *
 * A reader without the GIL must recognize invalid counts.  While incminimark sweeps, it
 * counts the used blocks of arenas again from 0, so the number of used blocks is unknown.
 * Only the newest incminimark keeps a valid count (heap_is_counted_on).  The count becomes
 * 0 shortly before gc_state changes to sweeping.  During marking, the count of blocks only
 * grows, and a minor collection precedes each marking step.  Therefore, a reader discards
 * its counts if a minor collection happened meanwhile.  During marking, it also discards
 * a count that is smaller than at the last minor collection.
 */

#include "hook.h"

/* Return the bytes that the GC has obtained from the system, or -1 if they are unknown. */
int64_t heap_has(void);

/* Set the addresses of the counts.  Call it once per process. */
void heap_prepare(const struct hook_place *place);

/* Remember the count of used blocks.  Call it with the GIL before and after each minor
   collection. */
void heap_seen(void);

/* Return the bytes of all old objects as the GC counts them, including dead objects that
   it has not swept yet.  Returns -1 if the counts were not found, or if the GC is sweeping
   and its count is invalid meanwhile.  Call it with the GIL. */
int64_t heap_old_bytes(void);
