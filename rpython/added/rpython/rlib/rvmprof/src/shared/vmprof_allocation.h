#pragma once
/* The functions that vmprof's own C files call while allocations are sampled.
 *
 * Without RPython, as in vmprof's package for CPython, and on other systems than Linux,
 * they are macros that do not change vmprof.
 * rvmprof_allocation.c defines the functions. */

#include "vmprof.h"

#include <stddef.h>

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)

#include <sys/types.h>

/* Return whether vmprof must install its timer and its signal handler. */
int vmprof_takes_time_samples(void);
/* Take no more samples, and write all waiting rows.  Call it before the trailer. */
void vmprof_allocation_stop(void);
/* Close the profile.  vmprof_disable() and a failing vmprof_enable() call it, and
   rvmprof.py calls it after a failed vmprof_init().  Returns 0, or -1 and sets errno. */
RPY_EXTERN int vmprof_allocation_close(void);
/* Forget the profile in a forked child, because it belongs to the parent. */
void vmprof_allocation_forget(void);
/* Write whole records of vmprof, as write(2) does. */
ssize_t vmprof_allocation_write(int fd, const void *records, size_t size);
/* Begin and end a CPU sample, in vmprof's signal handler.  Begin returns 0 if a thread is
   taking an allocation sample; then the handler must not take the CPU sample. */
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
