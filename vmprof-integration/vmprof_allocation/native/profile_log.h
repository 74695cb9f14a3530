#pragma once
/* The records of an allocation profile, and the buffer that they wait in.
 *
 * The layout is written down, byte by byte, in vmprof-integration/PROFILE.rst.
 * In short: everything that vmprof writes goes through unchanged, but for
 * the thread word of each stack sample, which receives the sample's key; and
 * with each flush goes one block of *facts*, one fact per key, dressed as
 * the name of a code object that no stack contains, which is what readers
 * that don't know it skip.  What is known of the sampled objects later goes
 * into blocks of its own.
 *
 * Each flush is one write() of whole records.  The functions take no lock
 * and allocate nothing; they may be called from a signal handler.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* a flush is due at this many bytes, or when the oldest are this old */
#define PROFILE_LOG_BYTES   (1 << 20)
#define PROFILE_LOG_NS      750000000

/* There is always room for so many facts, or else a flush is due: more than
   one sample can bring, even with one from each of vmprof's 20 buffers. */
#define PROFILE_LOG_BURST   64

/* what each block says of the run as a whole; all since the start */
struct profile_totals {
    int64_t allocated;      /* bytes that the GC's own pointers counted */
    int64_t lost;           /* samples whose stack could not be taken */
    int64_t dropped;        /* time samples that met another sample */
    int64_t collections;    /* minor collections */
    int64_t pressures;      /* memory pressures: 'allocated' misses bytes */
    int64_t surprises;      /* the GC changed behind the carrier's back */
};

/* Begin to write to 'fd'.  Times are given as in clock_gettime(
   CLOCK_MONOTONIC), in nanoseconds.  Returns 0, or an errno. */
int profile_log_open(int fd, int64_t now);

/* The run's settings, as text (PROFILE.rst says which): once, at the start */
void profile_log_settings(const char *text);

/* Whole records of vmprof's */
void profile_log_bytes(const void *records, size_t size);

/* One stack sample of vmprof's.  Returns its key, or 0 if it is none. */
int64_t profile_log_stack(const void *record, size_t size);

/* A key without a stack, for a sample that got lost */
int64_t profile_log_lost_stack(void);

/* The fact that belongs to 'key'.  'size' in bytes, 'interval' the mean
   interval in bytes; both are 0 for a time sample. */
void profile_log_fact(int64_t key, int64_t now, int64_t thread, int64_t size,
                      int64_t interval);

/* What became of the object that the sample 'key' was taken for, at the first
   minor collection after: its type, as the GC numbers them, and whether it
   survived. */
void profile_log_object(int64_t key, int64_t now, int64_t type, int survived);

/* True if a flush is due */
int profile_log_due(int64_t now);

/* Write what is there.  An error ends the profile at a whole record; it is
   kept, and returned by profile_log_close(). */
void profile_log_flush(int64_t now, const struct profile_totals *totals);

/* Forget the file and what waits to be written (after a fork). */
void profile_log_forget(void);

/* Write vmprof's last records (names, trailer), and forget the file.  Flush
   the facts before.  Returns 0 or the errno of the first error; EBADF if
   the program closed the file under us. */
int profile_log_close(void);

#pragma GCC visibility pop
