#pragma once
/* Notes in a profile about its end: the reason for an early end, and the processes to
   which this process has sent SIGTERM or SIGKILL.  They cannot record it themselves. */

#include <sys/types.h>

/* Write the reason for the profile's end, after end_notes_waiting().  "" means that the
   profile continues.  Keeps errno. */
void end_notes_why(const char *why);

/* Remember that this process has sent a signal to the process 'pid'. */
void end_notes_remember(pid_t pid, int signal);

/* Write the notes that are kept until the end: other programs, killed processes, and
   statistics. */
void end_notes_waiting(void);
