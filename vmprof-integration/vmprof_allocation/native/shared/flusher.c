#define _GNU_SOURCE
#include "flusher.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define PERIOD          100000000       /* ns */

static pthread_t flusher;
static int has_flusher;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakes;
static int ends;
static void (*look_for)(void);

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
        look_for();
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int flusher_start(void (*look)(void))
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    int error;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&wakes, &attributes);
    pthread_condattr_destroy(&attributes);
    ends = 0;
    look_for = look;
    sigfillset(&all);       /* the program's signals are not for it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&flusher, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
