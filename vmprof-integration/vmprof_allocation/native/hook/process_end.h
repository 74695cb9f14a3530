#pragma once
/* What ends the process, or the profile, before its time: a profile says why. */

#include <sys/types.h>

/* Write into the profile why it ends, and what waits; "": it goes on.  Keeps
   errno. */
void process_end_note(const char *why);

/* Write into the profile which other processes this one told to end: theirs can't say
   it. */
void process_end_note_told(void);

/* What libpypy calls instead of the C functions of these names */
void process_end_exit(int code);
void process_end_abort(void);
int process_end_kill(pid_t pid, int signal);
int process_end_raise(int signal);
int process_end_execv(const char *path, char *const arguments[]);
int process_end_execve(const char *path, char *const arguments[],
                       char *const environment[]);
