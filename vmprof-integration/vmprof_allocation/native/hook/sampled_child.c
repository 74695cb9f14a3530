#define _GNU_SOURCE
#include "sampled_child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hook.h"
#include "programs.h"
#include "recorder.h"
#include "run.h"
#include "signals.h"
#include "sigterm.h"
#include "start_stop.h"
#include "vmprof_file.h"
#include "vmprof_output.h"

#define SETTINGS_SIZE   2048
#define OWN_SETTINGS    160
#define VARIABLE_SIZE   8192
#define COMMAND_SIZE    2048    /* a longer one is not told */
#define TRIES           100     /* files of other processes with this pid */

static struct {
    int is_on;
    int is_child;
    int is_waiting;             /* for the first sample */
    int has_file;
    pid_t parent;               /* of the next child */
    pid_t parent_of_this;       /* 0: this is the run's first process */
    int64_t forked;
    uint64_t seed;              /* of the next child */
    char path[PATH_MAX], suffix[64], own_path[PATH_MAX];
    char present[PATH_MAX];     /* the profile that the first process writes */
    char settings[SETTINGS_SIZE], variable[VARIABLE_SIZE];
    char command[COMMAND_SIZE];
    dev_t device;               /* of the interpreter */
    ino_t inode;
    int64_t per_second, share;
} child;

int hook_sample_children(const char *path, const char *suffix, const char *settings,
                         const char *variable, const char *interpreter, int parent,
                         uint64_t seed)
{
    struct stat st;
    int error;

    if (strlen(path) + strlen(suffix) + 32 > sizeof child.path ||
        strlen(suffix) >= sizeof child.suffix ||
        strlen(settings) + OWN_SETTINGS > sizeof child.settings ||
        strlen(variable) >= sizeof child.variable)
        return ENAMETOOLONG;
    if (stat(interpreter, &st) < 0)
        return errno;
    error = vmprof_file_learn(signals_vmprofs_handler(), vmprof_output_decoy());
    if (error != 0)
        return error;
    memset(&child, 0, sizeof child);
    strcpy(child.path, path);
    strcpy(child.suffix, suffix);
    strcat(strcpy(child.present, path), suffix);
    strcpy(child.settings, settings);
    strcpy(child.variable, variable);
    child.device = st.st_dev;
    child.inode = st.st_ino;
    child.seed = seed;
    child.parent_of_this = parent;
    child.is_on = 1;
    programs_begin();
    if (parent != 0)
        sigterm_watch();
    return 0;
}

int hook_is_sampled_child(void)
{
    return child.is_child ? 1 + child.has_file : 0;
}

const char *hook_child_path(void)
{
    return child.own_path;
}

int child_is_this(void)
{
    return child.is_child;
}

void child_rotated(int fd)
{
    char link[32];
    ssize_t size;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, child.present, sizeof child.present - 1);
    child.present[size < 0 ? 0 : size] = '\0';
}

void child_end(void)
{
    child.is_on = child.is_waiting = child.is_child = 0;
    programs_end();
    sigterm_unwatch();
}

void child_limit(int64_t per_second, int64_t share)
{
    child.per_second = per_second;
    child.share = share;
}

void child_command(const char *command)
{
    if (strlen(command) < sizeof child.command)
        strcpy(child.command, command);
}

const char *child_known_command(void)
{
    return child.command[0] != '\0' ? child.command : NULL;
}

/* ____________________________________________________________ */
/* forks */

/* of splitmix64: another seed, as good as any */
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
           (child.is_waiting || run_process() == child.parent);
}

int child_begin(void)
{
    int error;

    child.is_child = child.is_waiting = 1;
    child.parent_of_this = child.parent;
    child.has_file = 0;
    child.own_path[0] = '\0';
    child.forked = recorder_now();
    /* its own children have others */
    child.seed = another(~child.seed);
    memset(&recorder_counts, 0, sizeof recorder_counts);
    error = start_stop_sample_child(child.seed);
    if (error != 0)
        child.is_on = child.is_child = child.is_waiting = 0;
    return error;
}

/* ____________________________________________________________ */
/* the child's profile */

static int open_file(void)
{
    int i, fd = -1, high;
    size_t size = sizeof child.own_path;

    /* nobody waits for more if it is gone */
    if (access(child.present, F_OK) < 0)
        return -1;
    for (i = 1; i <= TRIES; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        if ((size_t)snprintf(child.own_path, size, "%s.%d%s%s", child.path,
                             (int)getpid(), number, child.suffix) >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(child.own_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    if (fd < 0)
        return -1;
    (void)flock(fd, LOCK_EX | LOCK_NB);     /* who tidies up sees that it is in use */
    /* out of the way of the program's own descriptors */
    high = fcntl(fd, F_DUPFD_CLOEXEC, 512);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

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
            (long long)child.forked) < sizeof settings)
        error = run_follow(fd, child.forked, settings);
    if (error != 0) {
        (void)unlink(child.own_path);
        close(fd);
        return error;
    }
    recorder_limit(child.per_second, child.share);
    if (child_known_command() != NULL)
        recorder_named(0, child.command);
    sigterm_watch();
    return 0;
}

void child_open(void)
{
    int saved_errno = errno;

    if (!child.is_waiting)
        return;
    child.is_waiting = 0;
    child.has_file = open_profile() == 0;
    if (!child.has_file) {
        /* it may not write there any more: count it as not sampled */
        child.is_on = child.is_child = 0;
        (void)recorder_forget();
        vmprof_output_unfollow();
        start_stop_forked();
    }
    errno = saved_errno;
}

/* ____________________________________________________________ */
/* exec */

/* The interpreter is told not to import `site`, which would find the variable. */
static int is_without_site(char *const arguments[])
{
    const char *p;

    if (arguments == NULL || arguments[0] == NULL)
        return 1;
    while (*++arguments != NULL && **arguments == '-') {
        p = *arguments + 1;
        if (*p == '\0' || strcmp(p, "-") == 0)
            return 0;
        if (*p == '-') {
            if (strcmp(p, "-jit") == 0 && *++arguments == NULL)
                return 0;
            continue;
        }
        for (; *p != '\0'; p++) {
            if (*p == 'S')
                return 1;
            if (*p == 'c' || *p == 'm')
                return 0;       /* what follows is the program's */
            if (*p == 'W' || *p == 'X' || *p == 'Q') {
                if (p[1] == '\0' && *++arguments == NULL)
                    return 0;
                break;
            }
        }
    }
    return 0;
}

char *child_variable(const char *path, char *const arguments[])
{
    static char variable[VARIABLE_SIZE + 16];
    int saved_errno = errno, size, is_same;
    const char *value = strchr(child.variable, '=');
    struct stat st;

    is_same = child.is_on && value != NULL && stat(path, &st) == 0 &&
              st.st_dev == child.device && st.st_ino == child.inode &&
              !is_without_site(arguments);
    errno = saved_errno;
    if (!is_same)
        return NULL;
    size = (int)(value + 1 - child.variable);
    snprintf(variable, sizeof variable, "%.*s%d\t%s", size, child.variable,
             (int)child.parent_of_this, value + 1);
    return variable;
}
