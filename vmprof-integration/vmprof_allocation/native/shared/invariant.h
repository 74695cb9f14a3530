#pragma once
/* Conditions that must always hold.  Only test builds check them (CHECK_INVARIANTS),
   because a violation must not stop a program that is sampled. */

#ifdef CHECK_INVARIANTS
#include <assert.h>
#define INVARIANT(condition)    assert(condition)
#else
#define INVARIANT(condition)    ((void)0)
#endif
