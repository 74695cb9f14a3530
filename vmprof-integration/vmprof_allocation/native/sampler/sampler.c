#include "sampler.h"

#include <math.h>

#include "invariant.h"

static uint64_t next_random(struct sampler *s)
{
    /* splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom
       number generators", OOPSLA 2014 */
    uint64_t z = (s->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(struct sampler *s)
{
    return (double)((next_random(s) >> 11) + 1) * 0x1p-53;      /* in (0, 1] */
}

/* Return the exponential gap in bytes for a uniform u in (0, 1]. */
static int64_t gap_of(double u, int64_t interval)
{
    double gap = -log(u) * (double)interval;

    return gap < (double)SAMPLER_MAX_INTERVAL ? (int64_t)gap
                                              : SAMPLER_MAX_INTERVAL;
}

void sampler_draw(struct sampler *s)
{
    s->gap = s->fixed ? s->interval - 1 : gap_of(uniform(s), s->interval);
}

void sampler_start(struct sampler *s, int64_t interval, uint64_t seed, int fixed)
{
    s->random = seed;
    s->fixed = fixed;
    sampler_set_interval(s, interval);
}

void sampler_set_interval(struct sampler *s, int64_t interval)
{
    INVARIANT(0 < interval && interval <= SAMPLER_MAX_INTERVAL);
    s->interval = interval;
    sampler_draw(s);
}

void sampler_pass(struct sampler *s, int64_t bytes)
{
    INVARIANT(0 <= bytes && bytes <= s->gap);
    s->gap -= bytes;
}

/* Set the gap after an object of 'size' bytes that contains the sampled byte.  The
   object may contain further sampled bytes, which a division finds without a loop. */
static void next_fixed(struct sampler *s, int64_t size)
{
    int64_t tail = (size - s->gap) % s->interval;

    s->gap = tail ? s->interval - tail : 0;
}

int sampler_object(struct sampler *s, int64_t size)
{

    if (s->gap >= size) {
        s->gap -= size;
        return 0;
    }
    if (s->fixed)
        next_fixed(s, size);
    else
        sampler_draw(s);
    return 1;
}

void sampler_next_within(struct sampler *s, int64_t size, int64_t interval,
                         int64_t rest)
{
    double u;

    s->interval = interval;
    if (s->fixed)
        next_fixed(s, size);
    else if (rest > 0) {
        u = uniform(s);
        /* -log(u) >= 1 - u: usually no logarithm is needed to find out that the sampled
           byte is after the rest */
        s->gap = (1.0 - u) * (double)interval >= (double)rest
                     ? rest : gap_of(u, interval);
    }
}
