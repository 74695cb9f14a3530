#pragma once
/* One run, from hook_open() to hook_close(): the profile, and vmprof. */

#include <stdint.h>
#include <sys/types.h>

/* The process whose profile is being written; 0: none is */
pid_t run_process(void);

/* In a forked child: go on with a profile of its own, which goes to 'fd' and
   began at 'started', as recorder_now() has it.  Returns 0 or an errno. */
int run_follow(int fd, int64_t started, const char *settings);

/* The profile ends whole, and the next one begins, which goes to 'fd'.  With the
   GIL.  Returns 0, and '*error_before' is the errno that ended the one before, or
   0; or an errno if this can't be: then it goes on; ECANCELED: it ends. */
int run_rotate(int fd, const char *settings, int *error_before);

/* Write the end of the profile.  Returns 0 if all was written; an errno; -1: it is not
   this process's, or another thread ends it. */
int run_end(void);

/* Write what malloc counts, beside the GC's heap, if raw memory is sampled. */
void run_note_raw_memory(void);

/* What is called when the program has disabled vmprof, and the profile has ended */
void run_at_disable(void (*then)(void));

/* In a forked child, where nobody else ends the run */
void run_forked(void);
