#define _GNU_SOURCE
#include "grace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MILLISECOND     1000000         /* ns */
/* of one thread: more than a short function takes */
#define COMPUTED        (10 * MILLISECOND)
/* a nap in such a function is of microseconds */
#define NAP             (50 * MILLISECOND)
/* for a thread of which the kernel doesn't tell what it does */
#define NOT_KNOWN       (100 * MILLISECOND)

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* Read what the kernel says of a thread.  Returns 0 if it doesn't. */
static int read_of_thread(const char *thread, const char *name, char *text,
                          size_t size)
{
    char path[64];
    ssize_t length;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/%s", thread, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = read(fd, text, size - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;
    return 1;
}

/* Nanoseconds for which a thread has computed; -1: not known */
static int64_t computed(const char *thread)
{
    char text[128];

    if (!read_of_thread(thread, "schedstat", text, sizeof text))
        return -1;
    return strtoll(text, NULL, 10);
}

/* Does a thread wait in a system call?  In one that short functions make, too,
   it does not, unless it stays there. */
static int is_waiting(const char *thread, int64_t since)
{
    char text[256], *end;
    long call;

    if (!read_of_thread(thread, "syscall", text, sizeof text))
        return now() - since > NOT_KNOWN;
    call = strtol(text, &end, 10);
    if (end == text || call < 0)        /* "running", or amidst a page fault */
        return 0;
    if (call == SYS_write || call == SYS_nanosleep ||
        call == SYS_clock_nanosleep)
        return now() - since > NAP;
    return 1;
}

static int await_thread(const char *thread, int64_t milliseconds)
{
    static const struct timespec pause = { 0, 100000 };
    int64_t since = now(), first = computed(thread);

    for (;;) {
        int64_t time = computed(thread);
        if (time < 0 && now() - since > NOT_KNOWN)
            return 0;           /* or it has ended */
        if (time - first > COMPUTED || is_waiting(thread, since))
            return 0;
        if (now() - since > milliseconds * MILLISECOND)
            return ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
}

int grace_period(int milliseconds)
{
    static const struct timespec not_known = { 0, NOT_KNOWN };
    long self = syscall(SYS_gettid);
    DIR *threads = opendir("/proc/self/task");
    struct dirent *thread;
    int error = 0;

    if (threads == NULL) {
        nanosleep(&not_known, NULL);
        return 0;
    }
    while (error == 0 && (thread = readdir(threads)) != NULL)
        if (thread->d_name[0] != '.' && atol(thread->d_name) != self)
            error = await_thread(thread->d_name, milliseconds);
    closedir(threads);
    return error;
}
