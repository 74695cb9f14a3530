#pragma once
/* What ends the process before its time: the profile is ended first, or says why. */

#include <sys/types.h>

/* What libpypy calls instead of the C functions of these names */
void process_end_exit(int code);
void process_end_abort(void);
int process_end_kill(pid_t pid, int signal);
int process_end_raise(int signal);
int process_end_execv(const char *path, char *const arguments[]);
int process_end_execve(const char *path, char *const arguments[],
                       char *const environment[]);
