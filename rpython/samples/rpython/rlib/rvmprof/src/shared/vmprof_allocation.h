#pragma once
/* The function that returns whether vmprof must install its timer and its signal handler.
   Without RPython, as in vmprof's package for CPython, and on other systems than Linux,
   vmprof always installs them. */

#include "vmprof.h"

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)
int vmprof_takes_time_samples(void);
#else
#define vmprof_takes_time_samples()     1
#endif
