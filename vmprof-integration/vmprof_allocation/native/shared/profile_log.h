#pragma once
/* An allocation profile, as it is written.
 *
 * The layout is written down, byte by byte, in converter/PROFILE.rst.  In short: most of
 * what vmprof writes goes through unchanged.  Its stack samples don't: a stack becomes
 * the number of a node (stack_tree.h), and all else that is said of the run goes into
 * records of ours (records.h).
 *
 * Rows wait in their records until a flush is due, or there is no room for more.  Then a
 * *batch* is written: the totals, and behind them all that waits.  What the file holds
 * is whole after each.
 *
 * The functions take no lock and allocate nothing but what stacks take; they may be
 * called from a signal handler.
 */

#include <stddef.h>
#include <stdint.h>

#include "records.h"
#include "sink.h"
#include "stack_tree.h"

#pragma GCC visibility push(hidden)

/* A flush is due when the oldest row waits for so long; or, early in the
   run, for an eighth of the time since the start, and so long at least: what a
   process that ends without a word leaves unwritten is a small part of it. */
#define PROFILE_LOG_NS      750000000
#define PROFILE_LOG_FIRST   10000000

/* what each batch says of the profile as a whole; all since its start */
struct profile_totals {
    int64_t allocated;      /* bytes that the GC's own pointers counted */
    int64_t lost;           /* samples whose stack could not be taken */
    int64_t dropped;        /* time samples that met another sample */
    int64_t collections;    /* minor collections */
    int64_t pressures;      /* memory pressures: 'allocated' misses bytes */
    int64_t surprises;      /* the GC changed behind our back */
    int64_t waits;          /* key of the first sample that waits; 0: none does */
};

/* What the log asks of the recorder, with each batch and each flush */
struct profile_source {
    void (*totals)(struct profile_totals *);
    void (*waiting)(void);  /* put rows of RECORD_WAITING: what is new since the last
                               time in this profile */
};

/* Begin a profile, which goes to 'sink'.  Times are given as in clock_gettime(
   CLOCK_MONOTONIC), in nanoseconds.  One that was begun before has to be closed. */
void profile_log_open(struct sink *sink, int64_t now, const struct profile_source *);

/* It began at this time already, before anything was written. */
void profile_log_began(int64_t started);

/* The run's settings, as text (PROFILE.rst says which): at the start, and what
   comes to be known later */
void profile_log_settings(const char *text);

/* Whole records of vmprof's */
void profile_log_bytes(const void *records, size_t size);

/* Whole records of vmprof's that name functions: the profile gets those that its stacks
   have, each as soon as the function and a stack of it have come. */
void profile_log_names(const char *records, size_t size);

/* The stack of one stack sample of vmprof's.  Returns its node, or STACK_LOST if it is
   none. */
int64_t profile_log_stack(const void *record, size_t size);

/* Or of its words alone */
int64_t profile_log_stack_of(const stack_word *words, size_t count);

/* Do vmprof's stack samples say how much memory is resident? */
int profile_log_has_memory(void);

/* Tell the profile what this node is, if that was not done.  Returns its number there, or
   STACK_LOST if nobody knows any more, or it is. */
int64_t profile_log_needs_stack(int64_t node);

/* Numbers of sets of labels are below this; 0: none. */
#define PROFILE_LOG_LABELS  10000

/* 'text' knows what sets of labels are, "key=value" with 0x1f between them; or NULL. */
void profile_log_labels(const char *(*text)(int number));

/* Tell the profile what this set of labels is, if that was not done.  Returns the number,
   or 0 if nobody knows. */
int profile_log_needs_label(int number, int64_t now);

/* KiB that were resident when vmprof took the last stack; 0: it does not say */
int64_t profile_log_memory(void);

/* A stack that was given lately, under this key of the
   caller's.  Returns its node, or STACK_LOST if it has to be given again: after a
   hundred samples (stack_tree.h), or a second. */
#define PROFILE_LOG_KEYS_NS 1000000000

int64_t profile_log_known_stack(uint64_t key, int64_t now);

/* From now on, 'key' stands for this node, which profile_log_stack() has just
   returned. */
void profile_log_remember(uint64_t key, int64_t node);

/* Append a row to a record, and a text.  'now' is when it began to wait. */
void profile_log_row(enum record_kind kind, int64_t now, const int64_t *row);
void profile_log_text(enum record_kind kind, int64_t now, const int64_t *row,
                      const char *text, size_t size);

/* 'now', in nanoseconds since the profile began, in whole microseconds */
int64_t profile_log_time(int64_t now);

/* When it began */
int64_t profile_log_started(void);

/* What was counted when it began */
const struct profile_totals *profile_log_before(void);

/* True if a flush is due */
int profile_log_due(int64_t now);

/* Something waits outside of the records, which RECORD_WAITING is about. */
void profile_log_waits(int64_t now);

/* Hand over what is there.  An error ends the profile at a whole batch; it is
   kept, and returned by profile_log_close(). */
void profile_log_flush(int64_t now);

/* The profile ends whole, and the next one begins; their totals are their own, and
   numbers of samples and stacks go on. */
struct profile_log_next {
    struct sink *sink;
    const void *head;           /* vmprof's records before any name */
    size_t head_size;
    const char *settings;       /* to which the clock and the first key are added */
    int64_t first_key;          /* of a sample of the next one */
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

/* The first error that the sink had, or 0 */
int profile_log_error(void);

/* In a forked child: forget the sink, and what waits to be written. */
void profile_log_forget(void);

/* Hand over what is there, vmprof's last records behind it.  Returns 0 or the first
   error that the sink had: EBADF if the program closed the file under us. */
int profile_log_close(void);

#pragma GCC visibility pop
