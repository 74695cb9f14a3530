#pragma once
/* Decides which allocated bytes are sampled.
 *
 * Nouns.  The program allocates a stream of bytes.  Some of them are *sampled*; an object
 * is sampled if it contains at least one sampled byte.  The *interval* is the mean number
 * of bytes from one sampled byte to the next.  The *gap* is the number of bytes that pass,
 * from now on, before the next sampled byte.
 *
 * Exponential gaps (the default).  Sampled bytes are the arrivals of a Poisson process of
 * rate 1/interval along the stream.  So an object of s bytes is sampled with probability
 *
 *     p(s) = 1 - exp(-s / interval)
 *
 * independently of every other object and of the program's rhythm.  The distance to the
 * next arrival is exponential.  For a uniform u in (0, 1], the distance is -log(u) *
 * interval, and the gap is the integer part of the distance.  A Poisson process is
 * memoryless.  So a gap may be discarded and drawn again at any moment that does not depend
 * on the place of the next sampled byte: at the end of a sampled object, after a change of
 * the interval, or after bytes that were not counted.  For this reason an object of any
 * size needs one draw and no loop.
 *
 * Fixed gaps.  Every interval-th byte is sampled: counted from 0, the bytes with the
 * numbers interval - 1, 2 * interval - 1, and so on.  The result is reproducible, but it is
 * biased by loops whose period divides the interval.
 *
 * This file depends on no allocator.  hook/gc/nursery.c uses it for PyPy's nursery, and
 * malloc/raw_memory.c for native memory.
 */

#include <stdint.h>

#define SAMPLER_MAX_INTERVAL ((int64_t)1 << 62)

/* The sample point of a stream of allocations */
struct sampler {
    uint64_t random;      /* state of the generator (splitmix64) */
    int64_t interval;     /* mean bytes between two sampled bytes, >= 1 */
    int64_t gap;          /* bytes before the next sampled byte, >= 0 */
    int fixed;            /* whether gaps are fixed */
};

/* Start with a new gap.  'interval' is in 1..SAMPLER_MAX_INTERVAL bytes. */
void sampler_start(struct sampler *, int64_t interval, uint64_t seed, int fixed);

/* Change the interval.  The gap is drawn again, because the rest of the old gap belongs
   to the old interval. */
void sampler_set_interval(struct sampler *, int64_t interval);

/* Discard the gap, and draw another one, which counts from now on. */
void sampler_draw(struct sampler *);

/* Count 'bytes' allocated bytes, none of which is sampled.  'bytes' is at most 'gap'. */
void sampler_pass(struct sampler *, int64_t bytes);

/* Count an object of 'size' bytes.  Returns 1 if the object is sampled, and 0 otherwise. */
int sampler_object(struct sampler *, int64_t size);

/* Place the sample point after an object of 'size' bytes that contains the sampled byte,
   and that was sampled with this 'interval'.  The caller needs the new gap only if it is
   smaller than 'rest', the number of bytes that follow the object.  With exponential
   gaps, nothing is drawn if 'rest' is 0. */
void sampler_next_within(struct sampler *, int64_t size, int64_t interval,
                         int64_t rest);
