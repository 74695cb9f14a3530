#pragma once
/* A grace period, as RCU has: what other threads were in the middle of when it
 * began, they have left when it ends.
 *
 * For short functions only, in which a thread computes and at most writes or
 * naps.  A thread is out of such a function as soon as it is seen to wait in
 * another system call, or has computed for longer than the function takes.
 */

/* Returns 0; or ETIMEDOUT if a thread may still be there after so many
   'milliseconds'. */
int grace_period(int milliseconds);
