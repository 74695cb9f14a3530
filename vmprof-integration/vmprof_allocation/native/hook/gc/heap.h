#pragma once
/* What the GC counts of its heap, read where it stands: figures.h.
 *
 * These are words of libpypy's own data, at addresses that do not change, which
 * process.py has checked: whoever reads them follows no pointer, and needs no GIL.
 *
 * While it sweeps, incminimark (but for its newest) counts the blocks of arenas anew,
 * from 0 on, and nobody knows how many are in use.  The count is 0 a moment before the
 * state says so.  But while it marks, blocks only become more; and a minor collection
 * comes before each of its steps.  So who reads without the GIL believes nothing that a
 * minor collection has come between, and, while it marks, no count that is smaller than
 * at the last one.
 */

#include "hook.h"

/* Bytes that it has of the system; -1: not known */
int64_t heap_has(void);

void heap_prepare(const struct hook_place *place);

/* Before and behind a minor collection */
void heap_seen(void);

/* Bytes of all old objects, as the GC counts them, dead ones that it has not swept yet
   included; -1: not known, or not now.  With the GIL. */
int64_t heap_old_bytes(void);
