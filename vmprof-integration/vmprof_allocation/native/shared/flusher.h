#pragma once
/* A thread that looks now and then whether something waits to be written: a program
 * that stopped allocating may be killed later, and its last samples must not wait for
 * the next one. */

#pragma GCC visibility push(hidden)

/* Call 'look' ten times a second, until flusher_stop(); it returns 0 if the program's
 * first thread may have ended.  If there is no thread of the program's any more, 'look'
 * is told to write at once, and this one ends the process, as the last one would have.
 * Returns 0 or an errno. */
int flusher_start(int (*look)(int at_once));

/* Returns when it has ended.  Harmless if there is none. */
void flusher_stop(void);

/* In a forked child, which has no such thread */
void flusher_forget(void);

/* Return whether the calling thread is the only thread of the process, except for the
 * flusher. False if /proc cannot be read. */
int flusher_is_only_other_thread(void);

#pragma GCC visibility pop
