#pragma once
/* What a profile says of its end: why it ends before the program does, and which other
 * processes this one told to end, as theirs can't say it.
 */

#include <sys/types.h>

/* Write into the profile why it ends, and what end_notes_waiting() does; "": it goes on.
   Keeps errno. */
void end_notes_why(const char *why);

/* This process has sent 'pid' the signal. */
void end_notes_remember(pid_t pid, int signal);

/* Write into the profile what waits for its end: other programs, whom this process told
   to end, statistics. */
void end_notes_waiting(void);
