#pragma once
/* Metrics of the whole process: resident memory and processor time from the kernel, and the
 * size of the heap from the GC (PROFILE.rst, ``figures``).
 *
 * A reading of the metrics takes two system calls, whose cost does not depend on the mapped
 * memory.  Values that have hardly changed are not returned, so an idle service writes
 * nothing.
 *
 * The private memory is different: the kernel computes it page by page, in 10 to 30
 * microseconds per MiB, and in 10 milliseconds for 10,000 mappings.  So it is read less
 * often, in at most 1/2000 of the run time, and never while the program waits.  At the end
 * of the profile, it is read only if that takes at most 20 ms and at most 1/50 of the
 * profile's duration.  So a short-lived child does not wait for the reading.
 *
 * The engine knows the addresses of the GC's counters.  The heap is largest right before or
 * after a minor collection, and many collections may occur between two readings.  So the
 * program's thread calls figures_heap_seen() at these moments.  This function keeps the
 * maximum, and never waits for another thread.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Kinds of metrics, with the numbers of PROFILE.rst */
enum figures_kind {
    FIGURES_RESIDENT = 1,           /* bytes */
    FIGURES_HEAP_HAS = 2,           /* bytes */
    FIGURES_HEAP = 3,               /* bytes */
    FIGURES_PROCESSOR = 4,          /* nanoseconds */
    FIGURES_MINOR_FAULTS = 6,
    FIGURES_MAJOR_FAULTS = 7,
    FIGURES_PRIVATE = 8,            /* bytes */
    FIGURES_NURSERY = 9,            /* bytes */
    FIGURES_RAW = 10,               /* bytes; the sampler of native memory reads it */
    FIGURES_ALLOCATED = 11          /* bytes; recorder.c adds it to each mark */
};
/* Maximum number of values of one reading, which may return both the present heap and
   the largest heap */
#define FIGURES_MOST        10

/* A value of a metric */
struct figure {
    enum figures_kind kind;
    int64_t time;                   /* nanoseconds of CLOCK_MONOTONIC */
    int64_t value;
};

/* The GC's counters in bytes.  'has' and 'used' include the whole nursery. */
struct figures_heap {
    int64_t has;                    /* memory that the GC has from the system; 0 if
                                       unknown */
    int64_t used;                   /* the part of this memory that is in use */
    int64_t nursery;                /* size of the nursery */
};

/* Set the function that reads the GC's counters, which any thread may call.  The function
   returns 0 if the counters are unknown at the moment.  'read' is NULL if the engine cannot
   read them. */
void figures_heap_by(int (*read)(struct figures_heap *heap));

/* Read the heap, and keep the maximum until the next reading of the metrics.  Called with
   the GIL, before and after each minor collection. */
void figures_heap_seen(void);

/* Open the files of /proc.  figures_read() returns nothing before this call. */
void figures_open(void);
/* Close the files of /proc, also in a forked child.  Does nothing if they are closed. */
void figures_close(void);

/* Note whether a process that the sampler forked shares this process's pages.  During
   this time, almost no page is private, so the private memory is not returned. */
void figures_pages_are_shared(int are);

/* The occasions on which metrics are read.  The flusher uses FIGURES_NOW_AND_THEN, about
   ten times a second.  FIGURES_AT_ONCE is for any thread, and returns also values that
   hardly changed, but not the private memory.  FIGURES_LAST is for the end, after the
   flusher has ended: it returns the private memory, too, if that is quick to read. */
#define FIGURES_NOW_AND_THEN    0
#define FIGURES_AT_ONCE         1
#define FIGURES_LAST            2

/* Read the metrics into 'figures', and return the number of values, which may be 0.  'how'
   is one of the three occasions. */
int figures_read(struct figure figures[FIGURES_MOST], int how);

/* Return whether the first thread of the process may have ended before the last
   figures_read(), or its memory could not be read then. */
int figures_first_thread_may_have_ended(void);

#pragma GCC visibility pop
