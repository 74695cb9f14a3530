#pragma once
/* Forked children of the sampled process are sampled, too, each into a profile of
 * its own.
 *
 * At the fork, only the sampler begins anew; the file, and all that a profile
 * takes, come with the child's first sample: most children make none, or become
 * another program at once.  vmprof is not enabled again, which takes milliseconds:
 * what it wrote in the parent is known (code_names.h).
 *
 * One that becomes the same interpreter by exec finds a variable in its
 * environment.  No other program does, and none of this one's code.
 */

#include <stdint.h>

/* What sampling may take at most: recorder_limit() */
void child_limit(int64_t per_second, int64_t share);

/* What the program was called with */
void child_command(const char *command);
/* For another profile of this run; NULL: it is not known, or very long */
const char *child_known_command(void);

/* This process goes on in another profile, which 'fd' leads to. */
void child_rotated(int fd);

/* The profile ends, and with it this. */
void child_end(void);

/* Before a fork */
void child_before_fork(void);

/* In a forked child, before anything else: is it one that can go on? */
int child_is_wanted(void);
/* Then: sample it.  Returns 0 or an errno. */
int child_begin(void);

/* A sample is about to be taken: open the child's profile if it is the first.
   With the GIL. */
void child_open(void);

/* True in a forked child that is sampled */
int child_is_this(void);

/* This process is about to become 'path'.  Returns what is to be in its environment
   if it is this same interpreter, which will find it there; otherwise NULL. */
char *child_variable(const char *path, char *const arguments[]);
