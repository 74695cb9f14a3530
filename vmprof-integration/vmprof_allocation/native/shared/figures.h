#pragma once
/* What the kernel says of the whole process, read on a slow clock: PROFILE.rst,
 * ``figures``.
 *
 * Two system calls a reading, whose cost doesn't depend on how much memory is
 * mapped.  What hardly changed is not worth telling: a service that waits writes
 * nothing.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* PROFILE.rst's kinds */
enum figures_kind {
    FIGURES_RESIDENT = 1,           /* bytes */
    FIGURES_PROCESSOR = 4,          /* nanoseconds */
    FIGURES_MINOR_FAULTS = 6,
    FIGURES_MAJOR_FAULTS = 7
};
#define FIGURES_KINDS       4

struct figure {
    enum figures_kind kind;
    int64_t value;
};

/* Open what is read.  Without it, there are no readings. */
void figures_open(void);
/* Also in a forked child; harmless if it was done before */
void figures_close(void);

/* Read all figures, in any thread.  Returns how many of them, from the first on,
   are to be told: all, or none; 'always': also if they hardly changed. */
int figures_read(struct figure figures[FIGURES_KINDS], int always);

#pragma GCC visibility pop
