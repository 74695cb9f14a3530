#pragma once
/* A grace period, as in RCU: when it ends, other threads have left the functions in which
 * they were when it began.
 *
 * A grace period works for short functions only, in which a thread computes, and at most
 * writes or sleeps for microseconds.  A thread has left such a function when it waits in
 * another system call, or when it has computed for longer than the function takes.
 */

/* Wait until all other threads have left their present functions.  Returns 0, or ETIMEDOUT
   if a thread may still be in its function after 'milliseconds'. */
int grace_period(int milliseconds);
