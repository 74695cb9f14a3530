#pragma once
/* The settings for sampled children, which write profiles of their parent's run.
 *
 * sampled_child.h samples a forked child.  A child that executes this interpreter finds a
 * variable in its environment.  vmprof_allocation.pth reads and removes this variable
 * before the program runs.  No other program gets the variable.
 */

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define SETTINGS_SIZE   2048

/* The settings of this process, from which its children begin. */
extern struct child_settings {
    int is_on;                  /* whether children are sampled */
    int is_child;               /* whether this process was forked, and is sampled */
    pid_t parent;               /* parent of the next child */
    pid_t parent_of_this;       /* parent of this process; 0 for the first process of
                                   the run */
    uint64_t seed;              /* seed of the next child */
    char path[PATH_MAX], suffix[64];    /* as in hook_sample_children() */
    char present[PATH_MAX];     /* path of the profile that the first process is writing */
    char settings[SETTINGS_SIZE];
    int64_t per_second, share;  /* as in hook_limit() */
} child;

/* Set the limit of the children.  The arguments are as for recorder_limit(). */
void child_limit(int64_t per_second, int64_t share);

/* Remember the program's command line. */
void child_command(const char *command);
/* Return the program's command line for another profile of this run.  Returns NULL if the
   command line is unknown or very long. */
const char *child_known_command(void);

/* Store the path of the segment that begins now, on the file 'fd'. */
void child_rotated(int fd);

/* Stop the sampling of children, because the profile ends. */
void child_end(void);

/* Return whether this process is a sampled forked child. */
int child_is_this(void);

/* Return the variable for the environment of a program, in static memory, or NULL.  This
   process is about to execute 'path'.  Returns NULL if 'path' is not this interpreter, or
   if the interpreter will not read the variable. */
char *child_variable(const char *path, char *const arguments[]);
