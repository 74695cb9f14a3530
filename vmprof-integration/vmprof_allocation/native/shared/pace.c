#include "pace.h"

#define SECOND          1000000000.0
#define MOST_FASTER     16.0            /* the interval shrinks by at most this factor at
                                           once, ... */
#define MOST_SLOWER     64.0            /* ... and grows by at most this factor */
#define PAID_BACK       (SECOND / 10)   /* debt in ns at which the interval is doubled */
#define MOST_OWED       SECOND

void pace_start(struct pace *p, int64_t now, int64_t per_second, int64_t share)
{
    p->per_second = per_second;
    p->share = share;
    p->since = now;
    p->owed = 0;
    p->cost = 1000;
    p->samples = 0;
}

/* Return the worth of a sample (pace.h) in ns: the time that should pass, on average, for
   each sample. */
static double worth(const struct pace *p)
{
    if (p->per_second > 0)
        return SECOND / (double)p->per_second;
    return (double)(p->cost + PACE_UNSEEN_COST) * 1e6 / (double)p->share;
}

/* Round an interval up to four significant bits, so that a profile has few intervals. */
static int64_t rounded_up(double number)
{
    int64_t n = number < (double)PACE_MAX_INTERVAL ? (int64_t)number
                                                   : PACE_MAX_INTERVAL;
    int64_t step = 1;

    while (n / step >= 16)
        step *= 2;
    n = (n + step - 1) / step * step;
    return n < PACE_MIN_INTERVAL ? PACE_MIN_INTERVAL
         : n > PACE_MAX_INTERVAL ? PACE_MAX_INTERVAL : n;
}

/* Return the number, or the nearest number between 'low' and 'high'. */
static double limited(double number, double low, double high)
{
    return number < low ? low : number > high ? high : number;
}

int64_t pace_sample(struct pace *p, int64_t now, int64_t cost, int64_t interval)
{
    double elapsed = (double)(now - p->since);
    double wanted, ratio, owed;

    if (!pace_is_limited(p))
        return interval;
    p->samples++;
    p->cost += (cost - p->cost) / 16;
    wanted = worth(p);
    if (p->samples < PACE_WINDOW && elapsed < PACE_WINDOW * wanted)
        return interval;
    wanted *= p->samples;
    owed = limited((double)p->owed + wanted - elapsed, 0, MOST_OWED);
    ratio = wanted / limited(elapsed, 1, MOST_OWED);
    ratio *= 1 + limited(owed / PAID_BACK, 0, 1);
    p->owed = (int64_t)owed;
    p->since = now;
    p->samples = 0;
    /* ignore differences that may be chance */
    if (ratio > 0.8 && ratio < 1.25)
        return interval;
    return rounded_up((double)interval *
                      limited(ratio, 1 / MOST_FASTER, MOST_SLOWER));
}
