#define _GNU_SOURCE
#include "grace_period.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "small_file.h"

#define MILLISECOND     1000000         /* ns */
/* CPU time in ns after which a thread has left a short function */
#define COMPUTED        (10 * MILLISECOND)
/* time in ns after which a thread no longer sleeps in a short function */
#define NAP             (50 * MILLISECOND)
/* time in ns for a thread whose state is unknown */
#define NOT_KNOWN       (100 * MILLISECOND)

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* Read a file of /proc about a thread.  Returns 0 if it cannot be read. */
static int read_of_thread(const char *thread, const char *name, char *text,
                          size_t size)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/%s", thread, name);
    return small_file_read(path, text, size);
}

/* Return the CPU time of a thread in nanoseconds, or -1 if it is unknown. */
static int64_t computed(const char *thread)
{
    char text[128];

    if (!read_of_thread(thread, "schedstat", text, sizeof text))
        return -1;
    return strtoll(text, NULL, 10);
}

/* Return whether a thread waits in a system call, or has ended.  If short functions also
   make this system call, the thread counts as waiting only if NAP has passed since the time
   'since'. */
static int is_waiting(const char *thread, int64_t since)
{
    char text[256], *end;
    long call;

    if (!read_of_thread(thread, "syscall", text, sizeof text))
        return now() - since > NOT_KNOWN;
    call = strtol(text, &end, 10);
    if (end == text)                    /* "running" */
        return 0;
    if (call < 0)                       /* a page fault; or the first thread, which
                                           remains after its end */
        return strtoull(end, NULL, 16) == 0;
    if (call == SYS_write || call == SYS_nanosleep ||
        call == SYS_clock_nanosleep)
        return now() - since > NAP;
    return 1;
}

/* Another thread, by the name of its folder in /proc/self/task. */
struct other {
    char name[16];
    int64_t computed;           /* CPU time at the beginning in ns; -1 if it is unknown */
};

/* Return whether a thread has left the short function in which it may have been at the time
   'since'. */
static int has_left(const struct other *thread, int64_t since)
{
    int64_t time = computed(thread->name);

    if (time < 0 || thread->computed < 0)
        return now() - since > NOT_KNOWN || is_waiting(thread->name, since);
    return time - thread->computed > COMPUTED ||
           is_waiting(thread->name, since);
}

/* Return an array of all threads except this one, which the caller must free().  '*count'
   becomes their number. */
static struct other *others(size_t *count)
{
    long self = syscall(SYS_gettid);
    DIR *threads = opendir("/proc/self/task");
    struct other *found = NULL;
    struct dirent *entry;

    *count = 0;
    if (threads == NULL) {
        static const struct timespec not_known = { 0, NOT_KNOWN };
        nanosleep(&not_known, NULL);
    }
    while (threads != NULL && (entry = readdir(threads)) != NULL) {
        struct other *larger;
        if (entry->d_name[0] == '.' || atol(entry->d_name) == self)
            continue;
        larger = realloc(found, (*count + 1) * sizeof *found);
        if (larger == NULL)
            break;
        found = larger;
        (void)snprintf(found[*count].name, sizeof found->name, "%.15s",
                       entry->d_name);
        found[*count].computed = computed(found[*count].name);
        ++*count;
    }
    if (threads != NULL)
        closedir(threads);
    return found;
}

int grace_period(int milliseconds)
{
    static const struct timespec pause = { 0, 100000 };
    int64_t since = now();
    size_t i, count;
    struct other *threads = others(&count);

    while (count > 0) {
        /* a thread that has left is not checked again */
        for (i = 0; i < count; )
            if (has_left(&threads[i], since))
                threads[i] = threads[--count];
            else
                i++;
        if (count > 0 && now() - since > milliseconds * (int64_t)MILLISECOND)
            break;
        if (count > 0)
            nanosleep(&pause, NULL);
    }
    free(threads);
    return count == 0 ? 0 : ETIMEDOUT;
}
