#pragma once
/* The recorder, which puts samples into the profile, one at a time, from any thread.
 *
 * Both engines use the recorder.  For each allocation that the GC reports, it walks the
 * stack, adds the time, thread and labels, and passes a row to profile_log.c.  It also
 * decides when the profile is flushed, adapts the sampling interval to a limit, and counts
 * the samples.  The outcomes of the objects arrive later (recorder_begin_facts()).
 *
 * A signal handler takes CPU samples.  If the lock is taken, the CPU sample is dropped.
 * The thread that holds the lock waits only for the file and for the locks of a stack walk.
 */

#include <stddef.h>
#include <stdint.h>

#include "figures.h"
#include "profile_log.h"

#pragma GCC visibility push(hidden)

/* Numbers of samples since the profile began */
struct recorder_counts {
    int64_t samples;        /* allocation samples */
    int64_t lost;           /* allocation samples without a stack */
    int64_t time_samples;   /* CPU samples */
    int64_t dropped;        /* CPU samples that were dropped because the lock was taken */
};

extern struct recorder_counts recorder_counts;

/* Begin a profile, which is written to 'sink' until recorder_close().  'totals' stores the
   GC's counts: all fields except for 'lost', 'dropped' and 'waits'. */
void recorder_open(struct sink *sink, void (*totals)(struct profile_totals *));

/* Return the size in bytes of the memory for samples that wait for their outcome. */
size_t recorder_memory(void);

/* Write the settings (PROFILE.rst), and start the flusher, which writes waiting rows within
   a second even if no more samples are taken.  Returns 0 or an errno. */
int recorder_start(const char *settings);

/* Stop the flusher, and write all waiting rows.  No samples are recorded any more.  A
   second call does nothing. */
void recorder_stop(void);

/* Write another setting, "key=value" (PROFILE.rst), and all waiting rows.  The process
   may end right after the call.  Does nothing if this thread holds the lock, or if
   another thread holds it for a second.  Keeps errno. */
void recorder_note(const char *note);

/* Close the profile.  Returns 0, or the errno of the error that ended the profile. */
int recorder_close(void);

/* Return the key of the next sample. */
int64_t recorder_next_key(void);

/* End the segment, and begin the next segment, between two samples.  No sample is lost,
   and none is in both segments.  Call it with the recorder's lock.  The caller must also
   prevent changes of the GC's totals, for example by holding the GIL. */
void recorder_rotate(struct profile_log_next *next);

/* Forget the profile in a forked child, because it belongs to the parent.  Returns 1 if
   there was a profile. */
int recorder_forget(void);

/* Write all waiting rows, and call end().  A signal handler may call this.  If the
   interrupted code holds the lock, the rows are written and end() is called when this code
   unlocks.  If another thread holds the lock for 100 ms, only end() is called. */
void recorder_flush_and(void (*end)(void));

/* Take and release the recorder's lock, and return whether the calling thread holds it.
   While a thread holds the lock, CPU samples are dropped. */
void recorder_lock(void);
void recorder_unlock(void);
int recorder_has_lock(void);

/* Use the stack in 'record', a stack sample that vmprof has just taken, for the present
   sample.  Needs the lock.  Returns 0 if the record is no stack sample. */
int recorder_stack(const void *record, size_t size);

/* Use a stack that was walked without vmprof, for the present allocation sample.
   'words' has 'count' words in vmprof's format.  Needs the lock. */
void recorder_walked(const stack_word *words, size_t count);

/* Return whether new stacks were seen since the last call.  If so, the caller writes the
   names of functions, which these stacks may need. */
int recorder_has_new_stacks(void);

/* Set whether recorder_young() will report the outcome of each sample.  Otherwise,
   outcomes are not recorded. */
void recorder_expect_outcomes(int expected);

/* Record an allocation sample of 'size' bytes at a mean interval of 'interval' bytes.
   'walk' walks this thread's stack, and passes it to recorder_walked() or
   recorder_stack(); otherwise the sample has no stack.  'walk' is not called if
   'stack_key' is known (stack_nodes.h).  With the key 0, it is always called.  Returns the
   sample's key, or 0 if there is no profile.  Keeps errno. */
int64_t recorder_allocation(int64_t size, int64_t interval, uint64_t stack_key,
                            void (*walk)(void));

/* Set a limit for the samples (pace.h): samples per second, or a share of the run time in
   millionths.  0 and 0 remove the limit. */
void recorder_limit(int64_t per_second, int64_t share);

/* Return the mean sampling interval in bytes that is valid after the sample that this
   thread has just taken.  If the interval has changed, the caller must draw the gap
   again. */
int64_t recorder_next_interval(void);

/* Return the node of the stack of the newest allocation sample, or STACK_LOST. */
int64_t recorder_sampled_stack(void);

/* Return the number in the profile of a stack's node, and write the node if the profile
   does not have it.  Returns STACK_LOST if the stack is unknown. */
int64_t recorder_stack_number(int64_t node);

/* From now until the profile is closed, record only stacks and types, and no samples and
   outcomes.  The caller keeps the samples that it needs, by their keys and the nodes of
   their stacks. */
void recorder_without_samples(void);

/* Set the functions for labels.  'present' returns the number of the calling thread's
   set of labels, which is recorded with each sample; 'text' returns its text
   (profile_log_labels()). */
void recorder_labels(int (*present)(void), const char *(*text)(int number));

/* Write all waiting rows.  Returns the first error of the file, 0 if there was no error,
   or -1 if there is no profile. */
int recorder_flush(void);

/* Begin and end the reports of a collection; 'collections' is the number of minor
 * collections until then.  Begin takes the lock and end releases it, so CPU samples of this
 * thread are dropped meanwhile.  Begin returns 0 if there is no profile; then end must not
 * be called.
 *
 * Only between begin and end, call recorder_young(), recorder_inherited(), recorder_type(),
 * the functions that record the end of an object (from recorder_freed() to
 * recorder_lost()), and the functions for collections (from recorder_collected() to
 * recorder_swept()).
 */
int recorder_begin_facts(int64_t collections);
void recorder_end_facts(void);

/* Record at once that the outcome of the newest sample, 'key', will stay unknown.  Call
   it without the lock. */
void recorder_give_up(int64_t key);

/* Record the outcome of the object of sample 'key', or of the next object of the same
   batched allocation.  'type' is a number of recorder_type(), or 0 if it is unknown.
   'size' is in bytes, or 0 if it is the sample's size.  'live_size' is the object's size
   in bytes after the program has shrunk it, or 0 if the program has not. */
void recorder_young(int64_t key, enum outcome outcome, int64_t type,
                    int64_t size, int64_t live_size);
/* Record that a promoted object is dead.  The object has number 'which' in sample 'key',
   from 0 on. */
void recorder_freed(int64_t key, int which);
/* Record that a promoted object is dead, as recorder_freed() does, since an earlier
   'time' of recorder_now(). */
void recorder_freed_at(int64_t key, int which, int64_t time);
/* Record that a promoted object is alive although an earlier row has its end: the
   program can reach it again since 'time' of recorder_now(). */
void recorder_reached_again(int64_t key, int which, int64_t time);
/* Record that the sampler does not follow a promoted object any more. */
void recorder_lost(int64_t key, int which);

/* A promoted object that was sampled in an earlier segment, and is alive.  Sizes and the
   interval are in bytes; 'stack' is a node. */
struct inherited {
    int64_t key, stack, size, live_size, interval, type;
    int which;
};
/* Record an inherited object in the new segment. */
void recorder_inherited(const struct inherited *object);

/* A sample of native memory (PROFILE.rst, ``raw``).  'node' is the node of its stack;
   'size' and 'interval' are in bytes. */
struct raw_sample {
    int64_t key, node, size, interval, type;
};
/* Record a sample of native memory, as recorder_allocation() does, and set 'key' and
   'node'.  Returns the key, or 0 if there is no profile.  This function and the next two
   may be called in any thread, with or without the GIL. */
int64_t recorder_raw(struct raw_sample *sample, uint64_t stack_key, void (*walk)(void));
/* Record that the native memory of sample 'key' was freed, or with 'is_lost' that the
   sampler does not follow it any more.  Without this call, the memory counts as alive. */
void recorder_raw_ended(int64_t key, int is_lost);
/* Record a sample of native memory of an earlier segment that is alive. */
void recorder_raw_inherited(const struct raw_sample *sample);
/* Record the name of a type of native memory: the function and the library that
   allocated. */
void recorder_raw_type(int64_t number, const char *name);
/* Record the present value of a metric of the process. */
void recorder_figure(enum figures_kind kind, int64_t value);

/* Record a name of type 'number'.  The name has 'size' bytes.  'gcs' is the GC's number of
   the type, or -1 for a class. */
void recorder_type(int64_t number, enum type_name kind, int64_t gcs,
                   const char *name, size_t size);

/* Record a minor collection, which began at 'start' of recorder_now().  'allocated' is the
   number of bytes that were allocated until the collection. */
void recorder_collected(int64_t start, int64_t allocated);
/* Record that a major collection has marked all live objects.  'majors' is the number of
   major collections until now.  'began' is the time at which the marking began, or -1 if
   the time is unknown.  Objects that were promoted during the marking counted as alive. */
void recorder_marked(int64_t majors, int64_t began);

/* Record the size of all old objects after a major collection has swept.  'heap' is the
   GC's count in bytes; nothing is recorded if it is -1.  'heap_at_begin' is the count at
   the time when all objects from before the start of sampling were old, or -1 if the count
   is unknown.  'alive' and 'not_known' are estimates in bytes, from the samples that are
   alive and from the samples whose outcome is unknown. */
void recorder_swept(int64_t heap, int64_t heap_at_begin, double alive,
                    double not_known);

/* Record a mark: a name that the program gives to the present time.  Returns 0, or
   EINVAL if there is no profile. */
int recorder_mark(const char *name);

/* Record the program's name of a thread by the kernel's number; if 'thread' is 0, record
   the command line of the program.  Does nothing if there is no profile. */
void recorder_named(int64_t thread, const char *name);

/* Append a row of a heap snapshot: RECORD_HELD, or a kind of record that belongs to a
   snapshot.  'text' is NULL if the kind has no text.  Does nothing if there is no
   profile. */
void recorder_held(enum record_kind kind, const int64_t *row, const char *text);

/* Convert a time of recorder_now() to nanoseconds since the profile began. */
int64_t recorder_time(int64_t now);

/* Return the present time of CLOCK_MONOTONIC in nanoseconds. */
int64_t recorder_now(void);

/* Begin and end a CPU sample, in a signal handler.  If the lock is taken, begin counts the
   sample as dropped and returns 0; then the caller must not take the sample.  Begin never
   waits, because the interrupted thread may hold a lock of malloc for which the thread with
   the recorder's lock waits.  The caller preserves errno. */
int recorder_begin_time_sample(void);
void recorder_end_time_sample(void);

#pragma GCC visibility pop
