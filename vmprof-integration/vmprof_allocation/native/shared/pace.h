#pragma once
/* How far apart should samples be, so that they take no more time than the
 * user gives them, however fast the program allocates?
 *
 * The user gives either a number of samples a second, or a share of the time.
 * In both cases a sample is worth a certain time: so long must pass, on
 * average, for each sample.  For a share this is what a sample takes, as
 * measured while it is taken, divided by the share.
 *
 * A *window* is some samples in a row.  At its end the time that passed is
 * compared with the time that its samples are worth, and the interval is
 * multiplied by the ratio.  What a window took too much is owed by the next
 * ones, in which samples are up to twice as far apart until it is paid: so in
 * the long run the limit is kept, and not only approached.  What a window took
 * too little is not saved up.  A window ends early when too much time has
 * passed; a program that begins to allocate a hundred times faster gets 16
 * samples too many before the interval follows.
 *
 * This does not bias what is estimated from the samples.  The interval changes
 * when a sample was taken, and depends on what was before; the next gap is
 * drawn after that.  So each object's probability of being sampled is known
 * when it is allocated, from the interval that is recorded with the sample:
 * the sum of weights minus the sum of bytes is a martingale, whose mean is
 * zero.
 *
 * This file knows neither clock nor allocator.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

#define PACE_FIRST_INTERVAL     65536           /* bytes */
#define PACE_MIN_INTERVAL       64
#define PACE_MAX_INTERVAL       ((int64_t)1 << 40)
#define PACE_WINDOW             16              /* samples */

/* What a sample costs the program beside the time that can be measured inside
   of it, in nanoseconds: the way into the slow path, and what the program
   finds gone from the caches.  From benchmarks/: the time that a program
   loses to a sample, minus what the samples themselves measure. */
#define PACE_UNSEEN_COST        300

struct pace {
    int64_t per_second;     /* samples; 0: a share is given */
    int64_t share;          /* of the time, in millionths; 0: no limit */
    int64_t since;          /* when the window began, in ns */
    int64_t owed;           /* time, in ns */
    int64_t cost;           /* of a sample, in ns, smoothed */
    int samples;            /* in this window */
};

/* Give either, or neither. */
void pace_start(struct pace *, int64_t now, int64_t per_second, int64_t share);

static inline int pace_is_limited(const struct pace *p)
{
    return p->per_second != 0 || p->share != 0;
}

/* A sample was taken at 'now' and took 'cost', both in ns.  Returns the
   interval to go on with, in bytes, which is 'interval' if there is no limit. */
int64_t pace_sample(struct pace *, int64_t now, int64_t cost, int64_t interval);

#pragma GCC visibility pop
