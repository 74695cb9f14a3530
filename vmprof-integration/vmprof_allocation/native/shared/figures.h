#pragma once
/* What the kernel says of the whole process, and the GC of its heap, read on a slow
 * clock: PROFILE.rst, ``figures``.
 *
 * Two system calls a reading, whose cost doesn't depend on how much memory is
 * mapped.  What hardly changed is not worth telling: a service that waits writes
 * nothing.
 *
 * What of the memory is this process's alone, the kernel finds page by page: 10 to
 * 30 microseconds a MiB, and 10 milliseconds for 10,000 mappings.  So that has a clock of
 * its own, by which it takes 1/2000 of the time at most, and is not read where the
 * program waits for it; when the profile ends, only if that takes 20 ms at most, and one
 * fiftieth of its time: a child that does little is not to wait for it.
 *
 * What the GC counts, an engine knows where to read.  It is largest next to a minor
 * collection, of which there may be many from one reading to the next: there, the
 * program's own thread keeps the most of it.  It waits for nobody.
 */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* PROFILE.rst's kinds */
enum figures_kind {
    FIGURES_RESIDENT = 1,           /* bytes */
    FIGURES_HEAP_HAS = 2,           /* bytes */
    FIGURES_HEAP = 3,               /* bytes */
    FIGURES_PROCESSOR = 4,          /* nanoseconds */
    FIGURES_MINOR_FAULTS = 6,
    FIGURES_MAJOR_FAULTS = 7,
    FIGURES_PRIVATE = 8,            /* bytes */
    FIGURES_NURSERY = 9,            /* bytes */
    FIGURES_RAW = 10,               /* bytes; not read here */
    FIGURES_ALLOCATED = 11          /* bytes; with each mark */
};
/* the heap's twice: as it is, and when it was largest */
#define FIGURES_MOST        10

struct figure {
    enum figures_kind kind;
    int64_t time;                   /* of CLOCK_MONOTONIC, in nanoseconds */
    int64_t value;
};

/* In bytes; the nursery, all of it, is in the other two. */
struct figures_heap {
    int64_t has;                    /* what the GC has of the system; 0: not known */
    int64_t used;                   /* what of it is in use */
    int64_t nursery;
};

/* 'read' says what they are, in any thread; it returns 0 if they are not known.  NULL:
   they never are. */
void figures_heap_by(int (*read)(struct figures_heap *heap));

/* With the GIL, before and behind a minor collection */
void figures_heap_seen(void);

/* Open what is read.  Without it, there are no readings. */
void figures_open(void);
/* Also in a forked child; harmless if it was done before */
void figures_close(void);

/* A forked process of ours has this one's pages, too, or has them no more: meanwhile, next to
   nothing is private, which tells nothing of the program, and is not told. */
void figures_pages_are_shared(int are);

/* How they are read: now and then, by one thread; at once, by any, also if they hardly
   changed, and without what is slow; or for the last time, when that thread has ended,
   and with what is slow if that takes no more than an instant. */
#define FIGURES_NOW_AND_THEN    0
#define FIGURES_AT_ONCE         1
#define FIGURES_LAST            2

/* Returns how many there are to be told, perhaps none. */
int figures_read(struct figure figures[FIGURES_MOST], int how);

/* The thread that is the process, as the last reading told; also if that told nothing. */
int figures_first_thread_may_have_ended(void);

#pragma GCC visibility pop
