#pragma once
/* A thread that writes waiting samples to the profile.  A program may stop allocating,
   and be killed later: its last samples must not wait for the next sample. */

#pragma GCC visibility push(hidden)

/* Start the thread, which calls 'look' ten times a second until flusher_stop().  'look'
   returns 0 if the program's first thread may have ended.  If all threads of the program
   have ended, the flusher calls look(1), which must write at once.  Then the flusher ends
   the process as the program's last thread would have done.  Returns 0 or an errno. */
int flusher_start(int (*look)(int at_once));

/* Stop the flusher, and wait for its end.  Does nothing if it is not running. */
void flusher_stop(void);

/* Forget the flusher in a forked child, which does not have this thread. */
void flusher_forget(void);

/* Return whether the calling thread is the only thread of the process, except for the
   flusher.  Returns 0 if /proc cannot be read. */
int flusher_is_only_other_thread(void);

#pragma GCC visibility pop
