#pragma once
/* Allocation samples: see rvmprof_allocation.c. */

#include "vmprof_allocation.h"

#include <stdint.h>

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)

/* For rvmprof.py.  Before vmprof_enable() */
RPY_EXTERN void vmprof_allocation_open(int take_time_samples);
/* After vmprof_init(), and before vmprof_enable(), so that no signal comes between.
   'types': the names of the GC's types, a line each */
RPY_EXTERN void vmprof_allocation_start(const char *settings, const char *types);
/* Before vmprof_disable(), with the bytes that the GC has counted */
RPY_EXTERN void vmprof_allocation_close(intptr_t allocated);

/* For the GC: 'what' as in sampled_objects.py */
RPY_EXTERN intptr_t vmprof_allocation_sampled(intptr_t size, void *address);
RPY_EXTERN intptr_t vmprof_allocation_fact(intptr_t what, intptr_t key,
                                           intptr_t which, intptr_t type,
                                           intptr_t size, void *address);

#endif
