#pragma once
/* Notes in a profile about the end of processes: why this profile ends early, and to which
   other processes this process has sent SIGTERM or SIGKILL.  A killed process cannot record
   the signal itself. */

#include <sys/types.h>

/* Write the reason for the profile's end, after the notes of end_notes_waiting().  "" means
   that the profile continues.  Keeps errno. */
void end_notes_why(const char *why);

/* Remember that this process has sent a signal to the process 'pid'.  Ignores signals other
   than SIGTERM and SIGKILL. */
void end_notes_remember(pid_t pid, int signal);

/* Write the notes that are kept until the end: other programs, killed processes, and
   statistics. */
void end_notes_waiting(void);
