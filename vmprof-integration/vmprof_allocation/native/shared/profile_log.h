#pragma once
/* The writer of a profile, in the layout of converter/PROFILE.rst.
 *
 * Most of vmprof's records go through unchanged.  vmprof's stack samples do not: a stack
 * becomes the number of a node (stack_tree.h).  All other facts of a run go into records of
 * this project (records.h).
 *
 * A *row* describes one object, frame or collection.  Rows wait in their records until a
 * flush is due, or a record is full.  Then a *batch* is written: the totals, followed by
 * all waiting rows.  The file is complete after each batch.
 *
 * The functions take no lock, and allocate memory only for stacks.  Call them with the
 * recorder's lock; a signal handler may call them.
 */

#include <stddef.h>
#include <stdint.h>

#include "records.h"
#include "sink.h"
#include "stack_tree.h"

#pragma GCC visibility push(hidden)

/* A flush is due when the oldest row has waited for PROFILE_LOG_NS nanoseconds.  Early in
   the run, it is due after an eighth of the time since the start, but at least
   PROFILE_LOG_FIRST nanoseconds.  So a killed process loses only a small part of its
   samples. */
#define PROFILE_LOG_NS      750000000
#define PROFILE_LOG_FIRST   10000000

/* The totals of the profile since its start, which each batch contains */
struct profile_totals {
    int64_t allocated;      /* bytes allocated, by the GC's own pointers */
    int64_t lost;           /* samples without a stack */
    int64_t dropped;        /* CPU samples that were dropped because of another sample */
    int64_t collections;    /* minor collections */
    int64_t pressures;      /* memory pressures, which hide bytes from 'allocated' */
    int64_t surprises;      /* changes of the GC's state that the engine did not see */
    int64_t waits;          /* key of the first sample that waits for its outcome; 0 if
                               none waits */
};

/* Functions of the recorder that supply the contents of a batch and of a flush */
struct profile_source {
    /* store the present totals of the process; called for each batch */
    void (*totals)(struct profile_totals *);
    /* called for each flush */
    void (*waiting)(void);  /* append rows of RECORD_WAITING for the samples that were
                               not appended in this profile yet */
};

/* Begin a profile, which is written to 'sink'.  The previous one must be closed.  All
   times are nanoseconds of CLOCK_MONOTONIC. */
void profile_log_open(struct sink *sink, int64_t now, const struct profile_source *);

/* Set the start time of the profile to an earlier time.  Call it before anything is
   written. */
void profile_log_began(int64_t started);

/* Write settings of the run, a text that PROFILE.rst defines.  Called at the start, and
   again with settings that become known later. */
void profile_log_settings(const char *text);

/* Write whole records of vmprof. */
void profile_log_bytes(const void *records, size_t size);

/* Keep whole records of vmprof that name functions.  The profile gets the name of a
   function as soon as both the name and a stack with the function have arrived. */
void profile_log_names(const char *records, size_t size);

/* Return the node of the stack in a stack sample of vmprof, or STACK_LOST if the record
   is no stack sample. */
int64_t profile_log_stack(const void *record, size_t size);

/* Return the node of a stack of 'count' words. */
int64_t profile_log_stack_of(const stack_word *words, size_t count);

/* Return whether vmprof's stack samples contain the resident memory. */
int profile_log_has_memory(void);

/* Write the node of a stack to the profile if the profile does not have it.  Returns the
   number of the node in the profile.  Returns STACK_LOST if 'node' is STACK_LOST, or if the
   stack tree was emptied since the node was made. */
int64_t profile_log_needs_stack(int64_t node);

/* Limit of the numbers of sets of labels.  The number 0 means no labels. */
#define PROFILE_LOG_LABELS  10000

/* Set the function that returns the text of a set of labels, "key=value" with 0x1f
   between the pairs, or NULL for an unknown set. */
void profile_log_labels(const char *(*text)(int number));

/* Write a set of labels to the profile if the profile does not have it.  Returns the number
   of the set, or 0 if the set is unknown. */
int profile_log_needs_label(int number, int64_t now);

/* Return the resident memory in KiB from vmprof's last stack sample, or 0 if vmprof's
   samples do not contain it. */
int64_t profile_log_memory(void);

/* Return the node of a recent stack, for a key that the caller has passed to
   profile_log_remember().  Returns STACK_LOST if the stack must be walked: the key is
   unknown, was used for STACK_KEY_USES samples (stack_tree.h), or is a second old. */
#define PROFILE_LOG_KEYS_NS 1000000000

int64_t profile_log_known_stack(uint64_t key, int64_t now);

/* Let 'key' identify the stack of this node, which profile_log_stack() has just
   returned. */
void profile_log_remember(uint64_t key, int64_t node);

/* Append a row to the record of a kind.  'now' is the time at which the row begins to
   wait.  profile_log_text() also appends the text of the row. */
void profile_log_row(enum record_kind kind, int64_t now, const int64_t *row);
void profile_log_text(enum record_kind kind, int64_t now, const int64_t *row,
                      const char *text, size_t size);

/* Convert a time to nanoseconds since the profile began, in whole microseconds. */
int64_t profile_log_time(int64_t now);

/* Return the time at which the profile began. */
int64_t profile_log_started(void);

/* Return the totals of the process when the profile began. */
const struct profile_totals *profile_log_before(void);

/* Return whether a flush is due. */
int profile_log_due(int64_t now);

/* Note that a sample waits for its outcome outside of the records, so that a flush
   becomes due for its row of RECORD_WAITING. */
void profile_log_waits(int64_t now);

/* Write all waiting rows.  After an error, nothing more is written, and the profile ends
   with the last whole batch; profile_log_close() returns the error. */
void profile_log_flush(int64_t now);

/* The data for the end of a segment and the beginning of the next segment.  Each segment
   has its own totals, but the keys of samples continue. */
struct profile_log_next {
    struct sink *sink;          /* destination of the next segment */
    const void *head;           /* vmprof's records before the first name of a function */
    size_t head_size;
    const char *settings;       /* settings of the next segment; the clock and the first
                                   key are appended */
    int64_t first_key;          /* key of the first sample of the next segment */
    const void *trailer;        /* vmprof's last record, for the present segment */
    size_t trailer_size;
    int64_t started;            /* set by profile_log_begin_next(): start of the next
                                   segment */
    int ended;                  /* set by profile_log_rotate(): the first error of the
                                   present segment, or 0 */
};

/* Write the beginning of the next segment to its sink.  Returns 0 or an errno; in both
   cases the present segment continues until profile_log_rotate(). */
int profile_log_begin_next(struct profile_log_next *next, int64_t now);

/* End the present segment after a whole batch, and continue with the next one. */
void profile_log_rotate(struct profile_log_next *next);

/* Return the first error of the sink, or 0. */
int profile_log_error(void);

/* Forget the sink and all waiting rows, in a forked child. */
void profile_log_forget(void);

/* End the profile.  The last bytes that profile_log_bytes() got, such as vmprof's last
   record, end the file.  Returns 0 or the first error of the sink, for example EBADF if the
   program has closed the file. */
int profile_log_close(void);

#pragma GCC visibility pop
