#pragma once
/* The functions that end the process early.  They complete the profile, or record the
   reason for its end. */

#include <sys/types.h>

/* The functions that libpypy calls instead of the C functions of these names. */
void process_end_exit(int code);
void process_end_abort(void);
int process_end_kill(pid_t pid, int signal);
int process_end_raise(int signal);
int process_end_execv(const char *path, char *const arguments[]);
int process_end_execve(const char *path, char *const arguments[],
                       char *const environment[]);
