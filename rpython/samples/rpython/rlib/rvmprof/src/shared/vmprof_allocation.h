#pragma once
/* What vmprof asks where PyPy samples allocations, too; elsewhere, and in
   vmprof's own package, there are time samples only. */

#include "vmprof.h"

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)
int vmprof_takes_time_samples(void);
#else
#define vmprof_takes_time_samples()     1
#endif
