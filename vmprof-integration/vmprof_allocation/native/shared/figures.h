#pragma once
/* What the kernel says of the whole process, read on a slow clock: PROFILE.rst,
 * ``figures``.
 *
 * Two system calls a reading, whose cost doesn't depend on how much memory is
 * mapped.  What hardly changed is not worth telling: a service that waits writes
 * nothing.
 *
 * What of the memory is this process's alone, the kernel finds page by page: 10
 * microseconds a MiB, and 10 milliseconds for 10,000 mappings.  So that has a clock of
 * its own, by which it takes no more than a thousandth of the time, and is never read
 * where the program waits for it.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* PROFILE.rst's kinds */
enum figures_kind {
    FIGURES_RESIDENT = 1,           /* bytes */
    FIGURES_PROCESSOR = 4,          /* nanoseconds */
    FIGURES_MINOR_FAULTS = 6,
    FIGURES_MAJOR_FAULTS = 7,
    FIGURES_PRIVATE = 8             /* bytes */
};
#define FIGURES_KINDS       5

struct figure {
    enum figures_kind kind;
    int64_t value;
};

/* Open what is read.  Without it, there are no readings. */
void figures_open(void);
/* Also in a forked child; harmless if it was done before */
void figures_close(void);

/* Read them, in any thread.  Returns how many there are to be told, perhaps none;
   'always': also if they hardly changed, and at once, without what is slow. */
int figures_read(struct figure figures[FIGURES_KINDS], int always);

#pragma GCC visibility pop
