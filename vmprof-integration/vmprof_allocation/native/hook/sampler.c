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

void sampler_draw(struct sampler *s)
{
    double u, gap;

    if (s->fixed) {
        s->gap = s->interval - 1;
        return;
    }
    u = (double)((next_random(s) >> 11) + 1) * 0x1p-53;    /* (0, 1] */
    gap = -log(u) * (double)s->interval;
    s->gap = gap < (double)SAMPLER_MAX_INTERVAL ? (int64_t)gap
                                                : SAMPLER_MAX_INTERVAL;
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

int sampler_object(struct sampler *s, int64_t size)
{
    int64_t tail;

    if (s->gap >= size) {
        s->gap -= size;
        return 0;
    }
    if (!s->fixed) {
        sampler_draw(s);
        return 1;
    }
    /* the rest of the object may hold further points: divide, don't loop */
    tail = (size - s->gap) % s->interval;
    s->gap = tail ? s->interval - tail : 0;
    return 1;
}
