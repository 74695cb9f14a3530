#pragma once
/* How children of the sampled process are sampled, into profiles of their own: forked
 * ones (sampled_child.h), and those that become this same interpreter by exec, which find
 * a variable in their environment.  No other program does, and none of this one's code.
 */

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define SETTINGS_SIZE   2048

extern struct child_settings {
    int is_on;
    int is_child;               /* this process was forked, and is sampled */
    pid_t parent;               /* of the next child */
    pid_t parent_of_this;       /* 0: this is the run's first process */
    uint64_t seed;              /* of the next child */
    char path[PATH_MAX], suffix[64];
    char present[PATH_MAX];     /* the profile that the first process writes */
    char settings[SETTINGS_SIZE];
    int64_t per_second, share;
} child;

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

/* True in a forked child that is sampled */
int child_is_this(void);

/* This process is about to become 'path'.  Returns what is to be in its environment
   if it is this same interpreter, which will find it there; otherwise NULL. */
char *child_variable(const char *path, char *const arguments[]);
