#define _GNU_SOURCE
#include "flusher.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "small_file.h"

#define PERIOD          100000000       /* ns */

static pthread_t flusher;
static int has_flusher;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakes;
/* flusher_stop() asks the thread to end */
static int ends;
static int (*look_for)(int at_once);
/* signal mask of the thread that started the flusher */
static sigset_t programs_signals;

/* numbers of fields of /proc/self/stat; 0 is the state of the process */
#define THREADS         17
#define EXIT_CODE       49

/* whether other threads of the program were seen after the first thread had ended */
static int has_others;

/* Return whether a thread belongs to the sampler and runs Python code.  'thread' is its
   number as text.  Such a thread has its own number in its name (periodic_rotation.py).  A
   thread that it starts inherits the name, but has another number. */
static int is_ours(const char *thread)
{
    char path[64], name[32], ours[32];

    (void)snprintf(path, sizeof path, "/proc/self/task/%.15s/comm", thread);
    (void)snprintf(ours, sizeof ours, "vmprof %.15s\n", thread);
    return small_file_read(path, name, sizeof name) && strcmp(name, ours) == 0;
}

/* Return the number of the sampler's threads that run Python code. */
static long count_ours(void)
{
    DIR *threads = opendir("/proc/self/task");
    struct dirent *entry;
    long count = 0;

    while (threads != NULL && (entry = readdir(threads)) != NULL)
        if (entry->d_name[0] != '.' && is_ours(entry->d_name))
            count++;
    if (threads != NULL)
        closedir(threads);
    return count;
}

/* Parse the line of /proc/self/stat into fields[1..EXIT_CODE], numbered from the field
   after the process's state, and return the state.  Returns 0 if the line is invalid. */
static char parse_stat(const char *text, long fields[EXIT_CODE + 1])
{
    const char *name_end = strrchr(text, ')');
    char state, *field;
    int i;

    if (name_end == NULL || sscanf(name_end, ") %c", &state) != 1)
        return 0;
    field = (char *)name_end + 3;
    for (i = 1; i <= EXIT_CODE; i++)
        fields[i] = strtol(field, &field, 10);
    return state;
}

int flusher_is_only_other_thread(void)
{
    char text[1024];
    long fields[EXIT_CODE + 1];

    return small_file_read("/proc/self/stat", text, sizeof text) &&
           parse_stat(text, fields) != 0 && fields[THREADS] == 1 + has_flusher;
}

/* Return whether all threads of the program have ended, including the first thread, whose
 * ID is the process ID.  In a process that a non-main thread has forked, the end of the
 * first thread does not end the process: libc ends the process with its last thread.  So
 * the process would wait for the flusher for ever.  Returns 1 also if /proc cannot be read,
 * because a process that never ends is worse than unwritten samples.
 *
 * If the result is 1, 'ours' is the number of the sampler's threads other than the flusher,
 * and 'code' is the exit status of the process.  The status is 0 unless the last thread
 * ended by a system call without libc.
 */
static int is_over(long *ours, int *code)
{
    char text[1024];
    long fields[EXIT_CODE + 1];
    char state;

    *ours = *code = 0;
    if (!small_file_read("/proc/self/stat", text, sizeof text))
        return 1;
    state = parse_stat(text, fields);
    if (state != 'Z')
        return 0;
    if (fields[THREADS] > 2)
        *ours = count_ours();
    if (fields[THREADS] > 2 + *ours) {
        has_others = 1;
        return 0;
    }
    if (!has_others)
        *code = fields[EXIT_CODE] >> 8 & 0xff;
    return 1;
}

/* End the process, or return if libc ends it when the flusher returns as the last thread.
   libc does not do so if a thread has ended without libc; only such a thread sets a status,
   'code'.  'ours' is the number of the sampler's other threads, which still run. */
static void end(long ours, int code)
{
    pthread_sigmask(SIG_SETMASK, &programs_signals, NULL);
    if (code != 0 && ours > 0)
        _exit(code);
    if (code != 0)
        syscall(SYS_exit, code);
    if (ours > 0)
        exit(0);
}

/* Look at the waiting samples until flusher_stop() or the end of the program's threads.
   This is the function of the flusher's thread. */
static void *run(void *ignored)
{
    struct timespec wake;
    long ours = 0;
    int code = 0, has_ended = 0;

    (void)ignored;
    pthread_mutex_lock(&mutex);
    while (!ends && !has_ended) {
        clock_gettime(CLOCK_MONOTONIC, &wake);
        wake.tv_nsec += PERIOD;
        if (wake.tv_nsec >= 1000000000) {
            wake.tv_nsec -= 1000000000;
            wake.tv_sec++;
        }
        pthread_cond_timedwait(&wakes, &mutex, &wake);
        if (!look_for(0) && is_over(&ours, &code)) {
            look_for(1);
            has_flusher = 0;
            has_ended = 1;
        }
    }
    pthread_mutex_unlock(&mutex);
    if (has_ended)
        end(ours, code);
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
    sigfillset(&all);       /* the thread must not handle the program's signals */
    pthread_sigmask(SIG_SETMASK, &all, &programs_signals);
    error = pthread_create(&flusher, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &programs_signals, NULL);
    has_flusher = (error == 0);
    return error;
}

void flusher_stop(void)
{
    /* two threads may call this, but only one may join the flusher */
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
    has_flusher = has_others = 0;
    pthread_mutex_init(&mutex, NULL);
}
