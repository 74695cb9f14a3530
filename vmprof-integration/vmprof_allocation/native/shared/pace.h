#pragma once
/* The sampling interval for a given limit: the mean number of allocated bytes between
 * samples, so that they take no more time than the user allows, at any speed of the
 * program's allocations.
 *
 * The limit is either a number of samples per second, or a share of the run time.  In both
 * cases, a certain time has to pass, on average, for each sample: this is the *worth* of a
 * sample.  If the limit is a share, the worth is the measured cost of a sample divided by
 * the share.
 *
 * A *window* is a number of consecutive samples.  At its end, the elapsed time is compared
 * with the worth of its samples, and the interval is multiplied by the ratio.  If the
 * samples took too much time, the excess is a debt of the next windows.  Until the debt is
 * paid, samples are up to twice as far apart.  So the limit is kept in the long run, and
 * not only approached.  Unused time is not saved.  A window ends early if the elapsed time
 * exceeds the worth of a full window.  If a program begins to allocate a hundred times
 * faster, it gets 16 samples too many before the interval follows.
 *
 * A changing interval does not bias the estimates.  The interval changes only after a
 * sample, and depends only on earlier events; the next gap is drawn after the change.  So
 * the probability that an object is sampled is known when the object is allocated: it
 * depends on the interval that is recorded with the sample.  The sum of weights minus the
 * sum of bytes is a martingale with mean zero.
 *
 * This module reads no clock and allocates nothing.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

#define PACE_FIRST_INTERVAL     65536           /* bytes */
#define PACE_MIN_INTERVAL       64
#define PACE_MAX_INTERVAL       ((int64_t)1 << 40)
#define PACE_WINDOW             16              /* samples */

/* The time in ns that a sample costs in addition to the time that can be measured within
   it: the way into the slow path, and the cache misses of the program afterwards.  The
   number is the program's loss of time per sample in benchmarks/, minus the measured
   cost. */
#define PACE_UNSEEN_COST        300

/* The limit and the present window */
struct pace {
    int64_t per_second;     /* limit in samples per second; 0 if the limit is a share */
    int64_t share;          /* limit of the cost as a share of the run time, in
                               millionths; 0 if there is no such limit */
    int64_t since;          /* start of the window, in ns */
    int64_t owed;           /* debt of time, in ns */
    int64_t cost;           /* smoothed cost of a sample, in ns */
    int samples;            /* number of samples in this window */
};

/* Start with a limit: samples per second, or a share of the run time in millionths.  At
   most one of the two is not 0.  'now' is in ns. */
void pace_start(struct pace *, int64_t now, int64_t per_second, int64_t share);

/* Return whether there is a limit. */
static inline int pace_is_limited(const struct pace *p)
{
    return p->per_second != 0 || p->share != 0;
}

/* Note a sample that was taken at 'now' and took 'cost', both in ns.  Returns the next
   interval in bytes; if there is no limit, this is 'interval'. */
int64_t pace_sample(struct pace *, int64_t now, int64_t cost, int64_t interval);

#pragma GCC visibility pop
