/* Tests bare_fork() with a child that waits for ever.  argv[1] names what ends the child:
 *
 *   clock       its time limit.  This file replaces alarm(), because the real limit is
 *               longer than a test may take.
 *   parent      the parent's time limit
 *   stranger    a termination signal, which the child ignores, and then the parent's limit
 *
 * Prints the signal that ended the child, and whether the child was late.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "snapshots/bare_fork.h"
#include "recorder.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())

static int is_short;

int64_t recorder_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

unsigned alarm(unsigned seconds)
{
    struct itimerval soon = { { 0, 0 }, { 0, 20000 } };

    if (seconds != BARE_FORK_SECONDS)
        _exit(4);
    if (is_short)
        setitimer(ITIMER_REAL, &soon, NULL);
    return 0;
}

int main(int argc, char **argv)
{
    int status, is_late;
    pid_t child;

    CHECK(argc == 2);
    is_short = strcmp(argv[1], "clock") == 0;
    child = bare_fork(10);
    if (child == 0)
        for (;;)
            pause();
    CHECK(child > 0);
    if (is_short)
        while (bare_fork_is_at_work(child, 1))
            ;
    if (strcmp(argv[1], "stranger") == 0) {
        kill(child, SIGTERM);
        CHECK(bare_fork_is_at_work(child, 0.1));
    }
    CHECK(bare_fork_reap(child, &status, &is_late));
    CHECK(WIFSIGNALED(status));
    printf("%s %d\n", strsignal(WTERMSIG(status)), is_late);
    CHECK(!bare_fork_reap(child, &status, &is_late));
    return 0;
}
