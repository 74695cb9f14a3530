/* Calls grace_period() while another thread runs.  argv[1] names the thread's work, which
 * begins with a short function ("inside") of argv[2] milliseconds.  Prints the result of
 * grace_period(), whether the thread was still inside then, and whether the call took more
 * than a second.
 *
 *   waits       is inside, then waits in a system call for ever
 *   computes    is inside, then computes for ever
 *   naps        sleeps inside, a microsecond at a time; then waits
 *   sleeps      is never inside, and sleeps for ever
 *   writes      is never inside, and writes to a pipe without a reader
 *   ends        is inside, then ends
 *   crowd       computes, as fifteen other threads do
 *   leader      waits; the process's first thread has ended, and another thread calls
 *               grace_period()
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include "vmprof/grace_period.h"

static const char *what;
static int64_t inside_for;
static volatile int is_inside, has_begun, going = 1;
static int full[2];

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000 + t.tv_nsec / 1000000;
}

static void short_function(void)
{
    int64_t end = now() + inside_for;

    while (now() < end)
        if (strcmp(what, "naps") == 0)
            usleep(1);
}

static void *thread(void *unused)
{
    static char bytes[4096];

    (void)unused;
    is_inside = inside_for > 0;
    has_begun = 1;
    short_function();
    is_inside = 0;
    if (strcmp(what, "ends") == 0)
        return NULL;
    if (strcmp(what, "sleeps") == 0)
        sleep(1000);
    while (strcmp(what, "writes") == 0)
        if (write(full[1], bytes, sizeof bytes) < 0)
            exit(3);
    while ((strcmp(what, "computes") == 0 || strcmp(what, "crowd") == 0) && going)
        ;
    while (going)
        (void)select(0, NULL, NULL, NULL, NULL);
    return NULL;
}

static void *measure(void *leader)
{
    int64_t begin;
    int error;

    if (leader != NULL)
        usleep(100000);         /* give the first thread time to end */
    begin = now();
    error = grace_period(1000);
    printf("%s %d %d\n", error == 0 ? "passed" : strerror(error), is_inside,
           now() - begin > 1000);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char *argv[])
{
    int count = 1, i;
    pthread_t other;

    if (argc != 3 || pipe(full) < 0)
        return 3;
    what = argv[1];
    inside_for = atoi(argv[2]);
    if (strcmp(what, "crowd") == 0)
        count = 16;
    for (i = 0; i < count; i++)
        if (pthread_create(&other, NULL, thread, NULL) != 0)
            return 3;
    while (!has_begun)
        usleep(1);
    if (strcmp(what, "leader") == 0) {
        if (pthread_create(&other, NULL, measure, full) != 0)
            return 3;
        pthread_exit(NULL);
    }
    measure(NULL);
    return 0;
}
