#pragma once
/* The records of an allocation profile, and the buffers that they wait in.
 *
 * The layout is written down, byte by byte, in converter/PROFILE.rst.
 * In short: the file is a gzip file; each flush appends a member to it.  Most
 * of what vmprof writes goes through unchanged.  Its stack samples don't:
 * they become a block of *samples*, of some ten bytes each, in which a stack
 * is spelled out once and a number from then on.  vmprof's own readers pass
 * over the block; for them, the samples follow in vmprof's way when the run
 * ends, or when there are more stacks than the table holds, in members of
 * their own.
 *
 * Each flush hands one member of whole records to the sink (sink.h), of which
 * this file knows no more.  The functions take no lock
 * and allocate nothing; they may be called from a signal handler.
 */

#include <stddef.h>
#include <stdint.h>

#include "sink.h"

#pragma GCC visibility push(hidden)

/* A flush is due when the oldest sample waits for so long; or, early in the
   run, for an eighth of the time since the start, and so long at least: what a
   process that ends without a word leaves unwritten is a small part of it. */
#define PROFILE_LOG_NS      750000000
#define PROFILE_LOG_FIRST   10000000

/* what each block says of the profile as a whole; all since its start */
struct profile_totals {
    int64_t allocated;      /* bytes that the GC's own pointers counted */
    int64_t lost;           /* samples whose stack could not be taken */
    int64_t dropped;        /* time samples that met another sample */
    int64_t collections;    /* minor collections */
    int64_t pressures;      /* memory pressures: 'allocated' misses bytes */
    int64_t surprises;      /* the GC changed behind our back */
};

/* Begin a profile, which goes to 'sink'.  Times are given as in clock_gettime(
   CLOCK_MONOTONIC), in nanoseconds.  'totals' is asked with each flush.  One
   that was begun before has to be closed. */
void profile_log_open(struct sink *sink, int64_t now,
                      void (*totals)(struct profile_totals *));

/* It began at this time already, before anything was written. */
void profile_log_began(int64_t started);

/* From now on, until it is closed, the log holds no samples and no facts: only
   what their stacks are, and the names.  The caller keeps the samples that are
   of use to it, by their keys and the numbers of their stacks. */
void profile_log_without_samples(void);

/* The run's settings, as text (PROFILE.rst says which): at the start, and what
   comes to be known later */
void profile_log_settings(const char *text);

/* Whole records of vmprof's */
void profile_log_bytes(const void *records, size_t size);

/* The stack of one stack sample of vmprof's.  Returns its number, or 0 if it
   is none. */
uint64_t profile_log_stack(const void *record, size_t size);

/* The stack that profile_log_stack() was given lately, under this key of the
   caller's.  Returns its number, or 0 if it has to be given again: after a
   hundred samples (stack_table.h), or a second. */
#define PROFILE_LOG_KEYS_NS 1000000000

uint64_t profile_log_known_stack(uint64_t key, int64_t now);

/* From now on, 'key' stands for the stack with this number, which
   profile_log_stack() has just returned. */
void profile_log_remember(uint64_t key, uint64_t number);

/* A sample, with a number that these have just returned, or 0 if its stack
   got lost.  'thread' is the kernel's number, 'size' in bytes,
   'interval' the mean interval in bytes; both are 0 for a time sample.
   Returns its key, or 0 if there is no log. */
int64_t profile_log_sample(uint64_t stack, int64_t now, int64_t thread,
                           int64_t size, int64_t interval);

/* Makes room for one entry more of facts.h, which comes with the next flush: a
   name of a type, or any other.  Returns 0 if the log is not to have it. */
int profile_log_name(int64_t now);
int profile_log_fact(int64_t now);

/* 'now', in nanoseconds since the profile began */
int64_t profile_log_time(int64_t now);

/* What was counted when it began */
const struct profile_totals *profile_log_before(void);

/* True if a flush is due */
int profile_log_due(int64_t now);

/* Hand over what is there.  An error ends the profile at a whole record; it is
   kept, and returned by profile_log_close(). */
void profile_log_flush(int64_t now);

/* The profile ends whole, and the next one begins; their totals are their own, the
   samples are numbered on, the stacks from 1 again. */
struct profile_log_next {
    struct sink *sink;
    const void *head;           /* vmprof's records before any name */
    size_t head_size;
    const char *settings;       /* to which the clock is added */
    const void *trailer;        /* of the one that ends */
    size_t trailer_size;
    int64_t started;            /* filled in by the first of these */
    int ended;                  /* by the second: the first error of the one that
                                   ends, or 0 */
};

/* Write what it begins with.  Returns 0, or an errno if that can't be: the present
   one goes on, as it does until profile_log_rotate(). */
int profile_log_begin_next(struct profile_log_next *next, int64_t now);

void profile_log_rotate(struct profile_log_next *next);

/* No samples come any more: write what is there, and the samples in vmprof's
   way. */
void profile_log_finish(int64_t now);

/* The first error that the sink had, or 0 */
int profile_log_error(void);

/* In a forked child: forget the sink, and what waits to be written.  The
   tables stay as they are: to touch them is to copy them. */
void profile_log_forget(void);

/* Hand over vmprof's last records (names, trailer).  Finish before.  Returns 0
   or the first error that the sink had: EBADF if the program closed the file
   under us. */
int profile_log_close(void);

#pragma GCC visibility pop
