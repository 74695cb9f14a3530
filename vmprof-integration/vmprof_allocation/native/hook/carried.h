#pragma once
/* The sampled objects that a profile ends with, and the next one begins with
 * (run_rotate()): it says of each what a sample of it says, and has its stack and its
 * type under numbers of its own.  Then it is right by itself about what is alive.
 *
 * Costs time in what is followed, and in what is wanted of stacks (stack_table.h).
 * With the GIL, between two allocations. */

/* The profile is about to end.  With the recorder's lock. */
void carried_want_stacks(void);

/* The next one has begun. */
void carried_tell(void);
