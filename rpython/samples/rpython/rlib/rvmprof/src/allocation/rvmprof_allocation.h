#pragma once
/* Allocation samples: the functions that rvmprof.py and the GC call, with the GIL.
   rvmprof_allocation.c describes the records. */

#include "vmprof_allocation.h"

#include <stdint.h>

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)

/* Set whether vmprof's timer runs.  Called before vmprof_enable(). */
RPY_EXTERN void vmprof_allocation_open(int take_time_samples);
/* Start the samples, and write two texts to the profile: 'settings', and 'types', which has
   the GC's names of types, one per line.  Called after vmprof_init() and before
   vmprof_enable(), so that no signal interrupts the writing. */
RPY_EXTERN void vmprof_allocation_start(const char *settings, const char *types);
/* Write the last record, with the GC's count of allocated bytes.  Called before
   vmprof_disable(). */
RPY_EXTERN void vmprof_allocation_close(intptr_t allocated);

/* Take a sample; see sampled() in sampling.py.  Returns the sample's key, 0 if the
   sample is lost, or -1 to end the sampling in a forked child. */
RPY_EXTERN intptr_t vmprof_allocation_sampled(intptr_t size, void *address);
/* Receive a fact; see sampled_objects.py.  Returns 0 if there is no profile, and 1
   otherwise. */
RPY_EXTERN intptr_t vmprof_allocation_fact(intptr_t what, intptr_t key,
                                           intptr_t which, intptr_t type,
                                           intptr_t size, void *address);

#endif
