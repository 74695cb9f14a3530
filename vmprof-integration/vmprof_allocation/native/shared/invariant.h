#pragma once
/* What must always be so, and is looked at where it is tested: programs that
 * are sampled are not stopped for it. */

#ifdef CHECK_INVARIANTS
#include <assert.h>
#define INVARIANT(condition)    assert(condition)
#else
#define INVARIANT(condition)    ((void)0)
#endif
