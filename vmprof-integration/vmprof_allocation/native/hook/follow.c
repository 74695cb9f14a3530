#define _GNU_SOURCE
#include "follow.h"

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
} follow;

int hook_follow(const char *path, const char *suffix, const char *settings,
                const char *variable, const char *interpreter, int parent,
                uint64_t seed)
{
    struct stat st;
    int error;

    if (strlen(path) + strlen(suffix) + 32 > sizeof follow.path ||
        strlen(suffix) >= sizeof follow.suffix ||
        strlen(settings) + OWN_SETTINGS > sizeof follow.settings ||
        strlen(variable) >= sizeof follow.variable)
        return ENAMETOOLONG;
    if (stat(interpreter, &st) < 0)
        return errno;
    error = vmprof_file_learn(signals_vmprofs_handler(), vmprof_output_decoy());
    if (error != 0)
        return error;
    memset(&follow, 0, sizeof follow);
    strcpy(follow.path, path);
    strcpy(follow.suffix, suffix);
    strcat(strcpy(follow.present, path), suffix);
    strcpy(follow.settings, settings);
    strcpy(follow.variable, variable);
    follow.device = st.st_dev;
    follow.inode = st.st_ino;
    follow.seed = seed;
    follow.parent_of_this = parent;
    follow.is_on = 1;
    programs_begin();
    if (parent != 0)
        sigterm_watch();
    return 0;
}

int hook_is_followed(void)
{
    return follow.is_child ? 1 + follow.has_file : 0;
}

const char *hook_followed_path(void)
{
    return follow.own_path;
}

int follow_is_child(void)
{
    return follow.is_child;
}

void follow_rotated(int fd)
{
    char link[32];
    ssize_t size;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, follow.present, sizeof follow.present - 1);
    follow.present[size < 0 ? 0 : size] = '\0';
}

void follow_end(void)
{
    follow.is_on = follow.is_waiting = follow.is_child = 0;
    programs_end();
    sigterm_unwatch();
}

void follow_limit(int64_t per_second, int64_t share)
{
    follow.per_second = per_second;
    follow.share = share;
}

void follow_command(const char *command)
{
    if (strlen(command) < sizeof follow.command)
        strcpy(follow.command, command);
}

const char *follow_known_command(void)
{
    return follow.command[0] != '\0' ? follow.command : NULL;
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

void follow_before_fork(void)
{
    if (!follow.is_on)
        return;
    follow.parent = getpid();
    follow.seed = another(follow.seed);
}

int follow_is_wanted(void)
{
    follow.parent_of_this = follow.parent;
    return follow.is_on && start_stop_may_follow() &&
           (follow.is_waiting || run_process() == follow.parent);
}

int follow_begin(void)
{
    int error;

    follow.is_child = follow.is_waiting = 1;
    follow.has_file = 0;
    follow.own_path[0] = '\0';
    follow.forked = recorder_now();
    /* its own children have others */
    follow.seed = another(~follow.seed);
    memset(&recorder_counts, 0, sizeof recorder_counts);
    error = start_stop_follow(follow.seed);
    if (error != 0)
        follow.is_on = follow.is_child = follow.is_waiting = 0;
    return error;
}

/* ____________________________________________________________ */
/* the child's profile */

static int open_file(void)
{
    int i, fd = -1, high;
    size_t size = sizeof follow.own_path;

    /* nobody waits for more if it is gone */
    if (access(follow.present, F_OK) < 0)
        return -1;
    for (i = 1; i <= TRIES; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        if ((size_t)snprintf(follow.own_path, size, "%s.%d%s%s", follow.path,
                             (int)getpid(), number, follow.suffix) >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(follow.own_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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
            "%s;seed=%llu;pid=%d;parent=%d;clock=%lld", follow.settings,
            (unsigned long long)follow.seed, (int)getpid(), (int)follow.parent_of_this,
            (long long)follow.forked) < sizeof settings)
        error = run_follow(fd, follow.forked, settings);
    if (error != 0) {
        (void)unlink(follow.own_path);
        close(fd);
        return error;
    }
    recorder_limit(follow.per_second, follow.share);
    if (follow_known_command() != NULL)
        recorder_named(0, follow.command);
    sigterm_watch();
    return 0;
}

void follow_open(void)
{
    int saved_errno = errno;

    if (!follow.is_waiting)
        return;
    follow.is_waiting = 0;
    follow.has_file = open_profile() == 0;
    if (!follow.has_file) {
        /* it may not write there any more: count it as not sampled */
        follow.is_on = follow.is_child = 0;
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

char *follow_variable(const char *path, char *const arguments[])
{
    static char variable[VARIABLE_SIZE + 16];
    int saved_errno = errno, size, is_same;
    const char *value = strchr(follow.variable, '=');
    struct stat st;

    is_same = follow.is_on && value != NULL && stat(path, &st) == 0 &&
              st.st_dev == follow.device && st.st_ino == follow.inode &&
              !is_without_site(arguments);
    errno = saved_errno;
    if (!is_same)
        return NULL;
    size = (int)(value + 1 - follow.variable);
    snprintf(variable, sizeof variable, "%.*s%d\t%s", size, follow.variable,
             (int)follow.parent_of_this, value + 1);
    return variable;
}
