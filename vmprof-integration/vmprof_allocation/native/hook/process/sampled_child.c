#define _GNU_SOURCE
#include "sampled_child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "child_settings.h"
#include "hook.h"
#include "recorder.h"
#include "run.h"
#include "sigterm.h"
#include "stacks/walk.h"
#include "start_stop.h"
#include "vmprof/vmprof_output.h"

#define TRIES           100     /* maximum number of names that files of other
                                   processes with this PID may have taken */

static int is_waiting;          /* whether this child has not taken its first sample yet */
static int has_file;
static int64_t forked;          /* start of the child in nanoseconds of recorder_now() */
static char own_path[PATH_MAX]; /* path of the child's profile */

int hook_is_sampled_child(void)
{
    return child.is_child ? 1 + has_file : 0;
}

const char *hook_child_path(void)
{
    return own_path;
}

/* ____________________________________________________________ */
/* forks */

/* Return another seed, by splitmix64. */
static uint64_t another(uint64_t seed)
{
    seed += 0x9e3779b97f4a7c15u;
    seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
    seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
    return seed ^ seed >> 31;
}

void child_before_fork(void)
{
    if (!child.is_on)
        return;
    child.parent = getpid();
    child.seed = another(child.seed);
}

int child_is_wanted(void)
{
    return child.is_on && start_stop_may_sample_child() &&
           ((child.is_child && is_waiting) || run_process() == child.parent);
}

int child_begin(void)
{
    int error;

    child.is_child = is_waiting = 1;
    child.parent_of_this = child.parent;
    has_file = 0;
    own_path[0] = '\0';
    forked = recorder_now();
    /* this child's own children get other seeds than its siblings */
    child.seed = another(~child.seed);
    memset(&recorder_counts, 0, sizeof recorder_counts);
    error = start_stop_sample_child(child.seed);
    if (error != 0)
        child.is_on = child.is_child = 0;
    return error;
}

/* ____________________________________________________________ */
/* the child's profile */

/* Create the file of the child's profile.  Returns its descriptor, or -1 and sets errno. */
static int open_file(void)
{
    int i, fd = -1, high;
    size_t size = sizeof own_path;

    /* if the first process's profile was deleted, no further profile is needed */
    if (access(child.present, F_OK) < 0)
        return -1;
    for (i = 1; i <= TRIES; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        if ((size_t)snprintf(own_path, size, "%s.%d%s%s", child.path,
                             (int)getpid(), number, child.suffix) >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(own_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    if (fd < 0)
        return -1;
    (void)flock(fd, LOCK_EX | LOCK_NB);     /* a process that deletes old files sees
                                               that this file is in use */
    /* keep the low descriptors for the program */
    high = fcntl(fd, F_DUPFD_CLOEXEC, 512);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* Begin the child's profile.  Returns 0 or an errno. */
static int open_profile(void)
{
    char settings[SETTINGS_SIZE];
    int fd = open_file(), error = ENAMETOOLONG;

    if (fd < 0)
        return errno;
    if ((size_t)snprintf(
            settings, sizeof settings,
            "%s;seed=%llu;pid=%d;parent=%d;clock=%lld", child.settings,
            (unsigned long long)child.seed, (int)getpid(), (int)child.parent_of_this,
            (long long)forked) < sizeof settings)
        error = run_follow(fd, forked, settings);
    if (error != 0) {
        (void)unlink(own_path);
        close(fd);
        return error;
    }
    recorder_limit(child.per_second, child.share);
    if (child_known_command() != NULL)
        recorder_named(0, child_known_command());
    sigterm_watch();
    return 0;
}

static void open_at_first_sample(void)
{
    int saved_errno = errno;

    if (!child.is_child || !is_waiting)
        return;
    is_waiting = 0;
    has_file = open_profile() == 0;
    if (!has_file) {
        /* The child may have lost the permission to write this file.  From now on, it
           counts as a child that is not sampled. */
        child.is_on = child.is_child = 0;
        (void)recorder_forget();
        vmprof_output_unfollow();
        start_stop_forked();
    }
    errno = saved_errno;
}

int64_t child_take_sample(const struct nursery_sample *sample)
{
    if (!walk_is_ignored())
        open_at_first_sample();
    return walk_take_sample(sample);
}
