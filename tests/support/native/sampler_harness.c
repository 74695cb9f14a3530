/* Calls sampler.c to draw gaps, or to sample objects of known sizes.
 *
 *   sampler_harness gaps INTERVAL SEED FIXED N
 *                     print N gaps
 *   sampler_harness objects INTERVAL SEED FIXED ROUNDS
 *                     stdin has lines SIZE COUNT.  Allocate the lines in turn, ROUNDS
 *                     times.  Print the number of sampled objects of each line, and finally
 *                     the gap
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampler.h"

static int print_gaps(struct sampler *s, int64_t count)
{
    while (count-- > 0) {
        printf("%" PRId64 "\n", s->gap);
        sampler_draw(s);
    }
    return 0;
}

static int print_objects(struct sampler *s, int64_t rounds)
{
    static struct { int64_t size, count, sampled; } line[1000];
    int lines = 0, i;
    int64_t n;

    while (lines < 1000 && scanf("%" SCNd64 " %" SCNd64, &line[lines].size,
                                 &line[lines].count) == 2)
        lines++;
    while (rounds-- > 0)
        for (i = 0; i < lines; i++)
            for (n = 0; n < line[i].count; n++)
                line[i].sampled += sampler_object(s, line[i].size);
    for (i = 0; i < lines; i++)
        printf("%" PRId64 "\n", line[i].sampled);
    printf("%" PRId64 "\n", s->gap);
    return 0;
}

int main(int argc, char **argv)
{
    struct sampler s;

    if (argc == 6) {
        sampler_start(&s, strtoll(argv[2], NULL, 10),
                      strtoull(argv[3], NULL, 10), atoi(argv[4]));
        if (strcmp(argv[1], "gaps") == 0)
            return print_gaps(&s, strtoll(argv[5], NULL, 10));
        if (strcmp(argv[1], "objects") == 0)
            return print_objects(&s, strtoll(argv[5], NULL, 10));
    }
    fprintf(stderr, "usage: see sampler_harness.c\n");
    return 2;
}
