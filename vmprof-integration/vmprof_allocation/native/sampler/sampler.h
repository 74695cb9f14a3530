#pragma once
/* When is the next byte sampled?
 *
 * Nouns.  The program allocates a stream of bytes.  Some of them are
 * *sampled*; an object is sampled if it holds at least one sampled byte.
 * The *interval* is the mean number of bytes from one sampled byte to the
 * next.  The *gap* is the number of bytes that pass, from now on, before
 * the sampled byte comes.
 *
 * Exponential gaps (the default).  Sampled bytes are the arrivals of a
 * Poisson process of rate 1/interval along the stream, so that an object
 * of s bytes is sampled with probability
 *
 *     p(s) = 1 - exp(-s / interval)
 *
 * independently of every other object, whatever the rhythm in which the
 * program allocates.  The time to the next arrival is exponential: for a
 * uniform u in (0, 1] it is -log(u) * interval, and the byte in which it
 * falls is its integer part.  The process has no memory.  Therefore a gap
 * may be thrown away and drawn anew at any moment that was not chosen by
 * looking at where the next sampled byte is: at the end of a sampled
 * object, after a change of the interval, after bytes that nobody counted.
 * That is why an object of any size costs one draw, never a loop.
 *
 * Fixed gaps.  Every interval-th byte is sampled: bytes number
 * interval - 1, 2 * interval - 1, ... counted from 0.  Reproducible, but
 * aliases with loops whose period divides the interval.
 *
 * This file knows no allocator; nursery.c folds it into PyPy's.
 */

#include <stdint.h>

#define SAMPLER_MAX_INTERVAL ((int64_t)1 << 62)

struct sampler {
    uint64_t random;      /* state of the generator (splitmix64) */
    int64_t interval;     /* mean bytes between two sampled bytes, >= 1 */
    int64_t gap;          /* bytes before the next sampled byte, >= 0 */
    int fixed;            /* boolean: fixed gaps */
};

/* Start with a new gap.  'interval' is in 1..SAMPLER_MAX_INTERVAL. */
void sampler_start(struct sampler *, int64_t interval, uint64_t seed, int fixed);

/* Change the interval.  The gap is drawn anew: what is left of the old one
   belongs to the old interval. */
void sampler_set_interval(struct sampler *, int64_t interval);

/* Throw the gap away and draw another one: 'gap' counts from now on. */
void sampler_draw(struct sampler *);

/* 'bytes' bytes were allocated; the caller knows that none of them is
   sampled, and passes at most 'gap'. */
void sampler_pass(struct sampler *, int64_t bytes);

/* An object of 'size' bytes was allocated.  Returns 1 if it is sampled. */
int sampler_object(struct sampler *, int64_t size);

/* The sampled byte is in an object of 'size' bytes, chosen with this
   'interval': place the next one, which matters only if it is among the 'rest'
   bytes behind that object.  No draw if there are none. */
void sampler_next_within(struct sampler *, int64_t size, int64_t interval,
                         int64_t rest);
