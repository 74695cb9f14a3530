#pragma once
/* Takes samples into the profile, one at a time, whichever thread takes them.
 *
 * This is what the engines share, between the GC's news of an allocation,
 * the stack walk and profile_log.c: the lock, the stack of the sample
 * that is being taken, time and thread, when to write, how often to sample,
 * and the counts.
 *
 * A time sample is taken in a signal handler.  If its thread is at work in
 * here already, then the sample is dropped; otherwise it waits its turn, if it
 * may.  Who holds the lock waits for nothing but the file, and the locks that
 * a stack walk takes.
 */

#include <stddef.h>
#include <stdint.h>

#include "figures.h"
#include "profile_log.h"

#pragma GCC visibility push(hidden)

struct recorder_counts {
    int64_t samples;        /* allocation samples */
    int64_t lost;           /* allocation samples without a stack */
    int64_t time_samples;
    int64_t dropped;        /* time samples that met another sample */
};

extern struct recorder_counts recorder_counts;

/* Begin a profile, which goes to 'sink' until recorder_close().  'totals' fills
   in what the GC counts (all but 'lost' and 'dropped'). */
void recorder_open(struct sink *sink, void (*totals)(struct profile_totals *));

/* Bytes that samples which wait take in memory */
size_t recorder_memory(void);

/* Write the settings (PROFILE.rst) and, from now on, what waits for more than
   a second, even if no more samples come.  Returns 0 or an errno. */
int recorder_start(const char *settings);

/* Write what waits; no samples may come any more.  Harmless if it was done
   before. */
void recorder_stop(void);

/* Add to the settings, "key=value" (PROFILE.rst), and write what waits: the
   process may end right after it.  Keeps errno. */
void recorder_note(const char *note);

/* Forget the sink.  Returns 0, or the errno that ended the profile. */
int recorder_close(void);

/* That of the next sample */
int64_t recorder_next_key(void);

/* profile_log_rotate(), between two samples: none gets lost, or is in both.  With
   the lock, and what keeps the GC's totals as they are. */
void recorder_rotate(struct profile_log_next *next);

/* In a forked child: the profile is its parent's.  Returns 1 if there was
   one. */
int recorder_forget(void);

/* For a signal's handler: write what waits, and call end().  If the interrupted code has
   the lock, that happens when it unlocks; if another thread keeps it for a tenth of a
   second, nothing is written. */
void recorder_flush_and(void (*end)(void));

/* While this thread has the lock, its time samples are dropped. */
void recorder_lock(void);
void recorder_unlock(void);
int recorder_has_lock(void);

/* vmprof has walked a stack; 'record' is its stack sample.  With the lock.
   Returns 0 if it is no stack sample. */
int recorder_stack(const void *record, size_t size);

/* The stack of the allocation sample that is being taken has been walked without vmprof: so
   many words of it, as vmprof has them.  With the lock. */
void recorder_walked(const stack_word *words, size_t count);

/* True if stacks were seen for the first time since the last call: there may
   be names that are needed. */
int recorder_has_new_stacks(void);

/* From now on, recorder_young() says what became of the object of each sample, or, if
   not, nothing does. */
void recorder_expect_outcomes(int expected);

/* Take an allocation sample of 'size' bytes at a mean interval of 'interval'
   bytes.  'walk' walks this thread's stack, or makes vmprof do it, and hands the
   result to recorder_walked() or recorder_stack(); if it doesn't, then the stack is
   lost.  It is spared where 'stack_key' is known (stack_nodes.h; 0: always walk).
   Returns the sample's key, or 0 if there is no profile.  Keeps errno. */
int64_t recorder_allocation(int64_t size, int64_t interval, uint64_t stack_key,
                            void (*walk)(void));

/* From now on, no more samples than a number a second, or a share of the time
   in millionths (pace.h); 0 and 0: as many as there are. */
void recorder_limit(int64_t per_second, int64_t share);

/* The mean interval in bytes with which to go on, after the sample that this
   thread has just taken.  Draw the gap anew if it is another one. */
int64_t recorder_next_interval(void);

/* The node of its stack, or STACK_LOST */
int64_t recorder_sampled_stack(void);

/* The number of a node in the profile, which is told what it is; or STACK_LOST */
int64_t recorder_stack_number(int64_t node);

/* From now on, until it is closed, the profile holds no samples, nor what becomes of
   them: only what stacks and types are.  The caller keeps the samples that are of use to
   it, by their keys and the nodes of their stacks. */
void recorder_without_samples(void);

/* From now on, samples have the set of labels whose number 'present' returns, of the
   calling thread; 'text' knows what it is (profile_log_labels()). */
void recorder_labels(int (*present)(void), const char *(*text)(int number));

/* Write what waits.  Returns the first error that the file had, or 0; or -1, if there is no
   profile any more. */
int recorder_flush(void);

/* Around what a collection found out, of which there were so many minor ones: 'begin'
   takes the lock, 'end' gives it back.  What a time sample of this thread says meanwhile
   is lost.  'begin' returns 0 if there is no profile; then there is nothing to end. */
int recorder_begin_facts(int64_t collections);
void recorder_end_facts(void);

/* Record at once that the outcome of the newest sample, 'key', will stay unknown.  Call it
   without the lock. */
void recorder_give_up(int64_t key);

/* The object of sample 'key', or one more of the objects of the same piece, in their
   order.  'type' is a number of recorder_type(), or 0; 'size' in bytes, or 0 if it is the
   sample's; 'live_size' in bytes: what it takes since the program has shrunk it, or 0 if
   that was not done. */
void recorder_young(int64_t key, enum outcome outcome, int64_t type,
                    int64_t size, int64_t live_size);
/* Object number 'which' of sample 'key', from 0 on, was promoted, and is dead; or will
   not be heard of again. */
void recorder_freed(int64_t key, int which);
/* It is dead since 'time', on the clock of recorder_now(). */
void recorder_freed_at(int64_t key, int which, int64_t time);
/* It is not dead, although it was recorded: the program has it again since 'time'. */
void recorder_reached_again(int64_t key, int which, int64_t time);
void recorder_lost(int64_t key, int which);

/* A promoted object that was sampled in an earlier part of the profile, and is alive. */
struct inherited {
    int64_t key, stack, size, live_size, interval, type;
    int which;
};
void recorder_inherited(const struct inherited *object);

/* Raw memory (PROFILE.rst), in any thread, with the interpreter's lock or without.  A
   sample, as recorder_allocation() takes one, but that it is alive until recorder_raw_ended()
   says that it was freed, or that nobody knows any more.  Fills in 'key', which it returns
   and which is 0 if there is no profile, and 'node', that of its stack.
   recorder_raw_inherited(): it was sampled in an earlier part, and is alive. */
struct raw_sample {
    int64_t key, node, size, interval, type;
};
int64_t recorder_raw(struct raw_sample *sample, uint64_t stack_key, void (*walk)(void));
void recorder_raw_ended(int64_t key, int is_lost);
void recorder_raw_inherited(const struct raw_sample *sample);
/* What a type of these is called */
void recorder_raw_type(int64_t number, const char *name);
/* A figure of the process that is read now */
void recorder_figure(enum figures_kind kind, int64_t value);

/* A name of a type.  'gcs' is the GC's number, or -1. */
void recorder_type(int64_t number, enum type_name kind, int64_t gcs,
                   const char *name, size_t size);

/* A minor collection, which began at 'start', as recorder_now() gave it; so many bytes
   had been allocated before.  Or: all that is alive was marked, for so many times, which
   'began' then; -1: that is not known.  What became old meanwhile counted as alive. */
void recorder_collected(int64_t start, int64_t allocated);
void recorder_marked(int64_t majors, int64_t began);

/* A major collection has swept, and all old objects are counted: the GC's 'heap', in
   bytes, and what that was when all that was young as sampling began had met its first
   minor collection (-1: not known); beside it the estimated bytes of the sampled objects
   that are 'alive', and of those of which it is not known what became of them.  Nothing,
   if 'heap' is -1. */
void recorder_swept(int64_t heap, int64_t heap_at_begin, double alive,
                    double not_known);

/* The program names this moment.  Returns 0, or EINVAL if there is no profile. */
int recorder_mark(const char *name);

/* What the program calls a thread, as the kernel numbers it; or, if that is 0, itself:
   its command line.  Does nothing if there is no profile. */
void recorder_named(int64_t thread, const char *name);

/* A row of who holds what: RECORD_HELD and the two behind it, one of them with a text.
   Does nothing if there is no profile. */
void recorder_held(enum record_kind kind, const int64_t *row, const char *text);

/* 'now', of the clock below, as times are written in the profile */
int64_t recorder_time(int64_t now);

/* Of the clock that times in the profile are of */
int64_t recorder_now(void);

/* Begin and end a CPU sample, in a signal handler.  Begin returns 0 if the lock is taken:
   it counts the sample as dropped, and the caller must not take the sample.  Begin never
   waits: the interrupted thread may hold a lock of malloc's, for which the thread with the
   recorder's lock waits.  The caller preserves errno. */
int recorder_begin_time_sample(void);
void recorder_end_time_sample(void);

#pragma GCC visibility pop
