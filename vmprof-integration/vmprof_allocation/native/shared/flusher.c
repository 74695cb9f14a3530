#define _GNU_SOURCE
#include "flusher.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PERIOD          100000000       /* ns */

static pthread_t flusher;
static int has_flusher;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakes;
static int ends;
static int (*look_for)(int at_once);
static sigset_t programs_signals;

/* All others have ended, also the thread that is the process: one that a thread
   other than the main one forked ends so, and would wait for us for ever.  Also if that
   can't be told: better no more looks at what waits than a process that never ends. */
static int is_the_last(void)
{
    char text[1024], *end;
    char state;
    long threads;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    if (size <= 0)
        return 1;
    text[size] = '\0';
    end = strrchr(text, ')');       /* of the program's name */
    return end != NULL &&
           sscanf(end, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                  "%*d %*d %ld", &state, &threads) == 2 &&
           state == 'Z' && threads == 2;
}

static void *run(void *ignored)
{
    struct timespec wake;

    (void)ignored;
    pthread_mutex_lock(&mutex);
    while (!ends) {
        clock_gettime(CLOCK_MONOTONIC, &wake);
        wake.tv_nsec += PERIOD;
        if (wake.tv_nsec >= 1000000000) {
            wake.tv_nsec -= 1000000000;
            wake.tv_sec++;
        }
        pthread_cond_timedwait(&wakes, &mutex, &wake);
        if (!look_for(0) && is_the_last()) {
            look_for(1);
            /* libc calls exit() when this returns, as if we had not been */
            has_flusher = 0;
            pthread_sigmask(SIG_SETMASK, &programs_signals, NULL);
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int flusher_start(int (*look)(int at_once))
{
    pthread_condattr_t attributes;
    sigset_t all;
    int error;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&wakes, &attributes);
    pthread_condattr_destroy(&attributes);
    ends = 0;
    look_for = look;
    sigfillset(&all);       /* the program's signals are not for it */
    pthread_sigmask(SIG_SETMASK, &all, &programs_signals);
    error = pthread_create(&flusher, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &programs_signals, NULL);
    has_flusher = (error == 0);
    return error;
}

void flusher_stop(void)
{
    /* only one thread may join another */
    if (!__sync_bool_compare_and_swap(&has_flusher, 1, 0))
        return;
    pthread_mutex_lock(&mutex);
    ends = 1;
    pthread_cond_signal(&wakes);
    pthread_mutex_unlock(&mutex);
    pthread_join(flusher, NULL);
    pthread_cond_destroy(&wakes);
}

void flusher_forget(void)
{
    has_flusher = 0;
    pthread_mutex_init(&mutex, NULL);
}
