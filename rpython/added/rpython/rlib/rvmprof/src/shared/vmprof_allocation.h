#pragma once
/* What vmprof asks where PyPy samples allocations, too; elsewhere, and in
   vmprof's own package, there are time samples only. */

#include "vmprof.h"

#include <stddef.h>

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)

#include <sys/types.h>

int vmprof_takes_time_samples(void);
void vmprof_allocation_stop(void);              /* no more samples */
/* After vmprof_disable(), which calls it, or when vmprof_init() has failed.
   Returns 0, or -1 and an errno. */
RPY_EXTERN int vmprof_allocation_close(void);
void vmprof_allocation_forget(void);            /* in a forked child */
ssize_t vmprof_allocation_write(int fd, const void *records, size_t size);
int vmprof_begin_time_sample(void);
void vmprof_end_time_sample(void);

#else

#define vmprof_takes_time_samples()     1
#define vmprof_allocation_stop()        ((void)0)
#define vmprof_allocation_close()       0
#define vmprof_allocation_forget()      ((void)0)
#define vmprof_allocation_write         write
#define vmprof_begin_time_sample()      1
#define vmprof_end_time_sample()        ((void)0)

#endif
