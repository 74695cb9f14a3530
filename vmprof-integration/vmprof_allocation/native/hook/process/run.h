#pragma once
/* One run of the profiler, from hook_open() to hook_close(): its profile, and its use of
   vmprof. */

#include <stdint.h>
#include <sys/types.h>

/* Return the PID of the process whose profile is being written, or 0 without a profile. */
pid_t run_process(void);

/* Begin the profile of a sampled forked child on 'fd'.  'started' is the start of the
   child, a time of recorder_now().  Returns 0 or an errno. */
int run_follow(int fd, int64_t started, const char *settings);

/* Complete the profile, and begin the next segment on 'fd'.  The caller has the GIL.
 * Returns 0, an errno if the present profile continues, or ECANCELED if the profile is
 * ending.  After a success, '*error_before' is the errno that ended the previous segment
 * early, or 0.
 */
int run_rotate(int fd, const char *settings, int *error_before);

/* Write the end of the profile.  Returns 0 if everything was written, otherwise an errno.
   Returns -1 if the profile belongs to another process, or if another thread is ending
   it. */
int run_end(void);

/* Write malloc's count of bytes in use, less the GC's heap, if native memory is sampled. */
void run_note_raw_memory(void);

/* Set a function that is called after the program has disabled vmprof and the profile has
   ended. */
void run_at_disable(void (*then)(void));

/* Forget the parent's run in a forked child. */
void run_forked(void);
