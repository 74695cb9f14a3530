#pragma once
/* The settings for sampled children, which write profiles of their parent's run.
 *
 * A forked child is sampled in sampled_child.h.  A child that executes this interpreter
 * finds a variable in its environment.  vmprof_allocation.pth reads and removes this
 * variable before the program runs.  No other program gets it.
 */

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define SETTINGS_SIZE   2048

/* The settings of this process, from which its children begin. */
extern struct child_settings {
    int is_on;
    int is_child;               /* whether this process was forked, and is sampled */
    pid_t parent;               /* parent of the next child */
    pid_t parent_of_this;       /* parent of this process; 0 for the first process of
                                   the run */
    uint64_t seed;              /* seed of the next child */
    char path[PATH_MAX], suffix[64];
    char present[PATH_MAX];     /* profile that the first process is writing */
    char settings[SETTINGS_SIZE];
    int64_t per_second, share;
} child;

/* Set the limit that recorder_limit() sets. */
void child_limit(int64_t per_second, int64_t share);

/* Remember the program's command line. */
void child_command(const char *command);
/* Return the command line for another profile of this run.  Returns NULL if it is unknown
   or very long. */
const char *child_known_command(void);

/* Continue in another segment, which 'fd' refers to. */
void child_rotated(int fd);

/* Stop the sampling of children, because the profile ends. */
void child_end(void);

/* Return whether this process is a sampled forked child. */
int child_is_this(void);

/* Return the variable for the environment of a program, in static memory, or NULL.  This
   process is about to execute 'path'.  The variable is needed if 'path' is this
   interpreter, and if it will read the variable. */
char *child_variable(const char *path, char *const arguments[]);
