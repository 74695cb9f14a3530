/* Threads take samples with recorder.c, as in a program.
 *
 *   recorder_harness PROFILE HEAD TRAILER
 *
 * HEAD and TRAILER are vmprof's first and last records, in hexadecimal.  Prints the number
 * of allocation samples, the number of those samples without a stack, the bytes that the
 * samples represent, and the number of CPU samples.
 *
 * Then forks a child, which must not continue the profile.  The same threads write another
 * profile to PROFILE.2, and a third one in segments to PROFILE.part.1 and so on.  Each
 * segment continues where the previous segment ended.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define flusher_start real_flusher_start
#define run run_flusher
#include "flusher.c"
#undef run
#undef flusher_start

#include "check.h"
#include "children.h"
#include "file_sink.h"
#include "recorder.h"

#define ALLOCATING      3       /* threads that take allocation samples */
#define TIMED           2       /* threads that take CPU samples */
#define SAMPLES         5000    /* samples of each thread */
#define LOST            100     /* one sample of this many has no stack */
#define PARTS           20

/* Creating a thread calls malloc(), and a thread with malloc's lock may wait for the
   recorder's lock.  So the recorder must not have its lock here. */
int flusher_start(int (*look)(int at_once));
int flusher_start(int (*look)(int at_once))
{
    CHECK(!recorder_has_lock());
    return real_flusher_start(look);
}

static const char *head, *trailer;
static int stacks = 300;
static int goes_on;
/* The program's GIL: allocations come one at a time.  CPU samples do not take the GIL. */
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;

static void records(const char *hex)
{
    unsigned char bytes[4096];
    size_t size = from_hex(hex, bytes, sizeof bytes);

    recorder_lock();
    profile_log_bytes(bytes, size);
    recorder_unlock();
}

/* ____________________________________________________________ */
/* The work of the engine and of vmprof */

static void totals(struct profile_totals *t)
{
    t->allocated = 1;
}

/* vmprof takes a sample of stack number 'stack'. */
static int take_stack(int64_t stack)
{
    int64_t words[] = { 1, 4, 1, 8 * (stack + 1), 1, 8, 0 };
    char record[1 + sizeof words] = "\x01";

    memcpy(record + 1, words, sizeof words);
    return recorder_stack(record, sizeof record);
}

static __thread int64_t current;        /* number of the sample, from 1 in each thread */

static void walk(void)
{
    CHECK(recorder_has_lock());
    if (current % LOST != 0)
        CHECK(take_stack(current % stacks));
    (void)recorder_has_new_stacks();
}

static void *allocate(void *ignored)
{
    (void)ignored;
    for (current = 1; current <= SAMPLES; current++) {
        uint64_t key = current % 2 ? 0 : (uint64_t)(current % stacks + 1);
        int64_t sample;
        if (current % LOST == 0)
            key = 0;            /* a stack with a known key is never lost */
        pthread_mutex_lock(&gil);
        sample = recorder_allocation(16, 1000, key, walk);
        CHECK(sample > 0);
        CHECK(!recorder_has_lock());
        CHECK(recorder_next_interval() > 0);
        if (current % 10 == 0) {
            CHECK(recorder_begin_facts(current));
            CHECK(recorder_has_lock());
            recorder_young(sample, OUTCOME_PROMOTED, 7, 0, 0);
            recorder_freed(sample, 0);
            recorder_collected(recorder_now(), 1);
            recorder_end_facts();
            CHECK(!recorder_has_lock());
        }
        pthread_mutex_unlock(&gil);
    }
    return NULL;
}

static void *take_time_samples(void *ignored)
{
    int64_t i;

    (void)ignored;
    for (i = 0; i < SAMPLES; i++)
        if (recorder_begin_time_sample()) {
            /* another signal's handler cannot take a sample during this sample */
            CHECK(!recorder_begin_time_sample());
            CHECK(take_stack(i % stacks));
            recorder_end_time_sample();
        }
    return NULL;
}

static void *begin_time_sample(void *begun)
{
    *(int *)begun = recorder_begin_time_sample();
    return NULL;
}

/* A CPU sample drops itself while another thread has the lock. */
static void check_a_time_sample_never_waits(void)
{
    pthread_t thread;
    int begun = -1;

    alarm(60);                  /* end the harness if the sample waits */
    recorder_lock();
    CHECK(pthread_create(&thread, NULL, begin_time_sample, &begun) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(begun == 0 && recorder_counts.dropped == 1);
    recorder_unlock();
    alarm(0);
}

/* Use the recorder as other threads of the program do, during the samples. */
static void *disturb(void *ignored)
{
    static const struct timespec pause = { 0, 1000000 };

    (void)ignored;
    while (__atomic_load_n(&goes_on, __ATOMIC_SEQ_CST)) {
        recorder_note("ended=perhaps");
        recorder_limit(1000000, 0);
        recorder_note("ended=");
        recorder_limit(0, 0);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* ____________________________________________________________ */

static void run(const char *path)
{
    static struct file_sink file;
    pthread_t thread[ALLOCATING + TIMED], disturber;
    /* a pause that is longer than the flusher's interval */
    struct timespec pause = { 0, 300000000 };
    int i, fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);

    goes_on = 1;
    CHECK(pthread_create(&disturber, NULL, disturb, NULL) == 0);
    CHECK(fd >= 0 && file_sink_open(&file, fd) == 0);
    CHECK(recorder_allocation(16, 1000, 0, walk) == 0);
    recorder_open(&file.sink, totals);
    recorder_expect_outcomes(1);
    records(head);
    CHECK(recorder_start("engine=harness;facts=types,lifetimes") == 0);
    for (i = 0; i < ALLOCATING + TIMED; i++)
        CHECK(pthread_create(thread + i, NULL, i < ALLOCATING
                             ? allocate : take_time_samples, NULL) == 0);
    for (i = 0; i < ALLOCATING + TIMED; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    nanosleep(&pause, NULL);
    recorder_stop();
    recorder_stop();
    CHECK(recorder_allocation(16, 1000, 0, walk) == 0);
    records(trailer);
    CHECK(recorder_close() == 0);
    CHECK(recorder_close() == 0);
    __atomic_store_n(&goes_on, 0, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(disturber, NULL) == 0);
    recorder_note("ended=");    /* a setting after the end of the profile is discarded */
    close(fd);
    CHECK(recorder_counts.samples == ALLOCATING * SAMPLES);
    /* each attempt drops one sample: the outer one if another thread has the lock,
       otherwise the inner one */
    CHECK(recorder_counts.dropped == TIMED * SAMPLES);
    printf("%" PRId64 " %" PRId64 " %d %" PRId64 "\n", recorder_counts.samples,
           recorder_counts.lost, ALLOCATING * SAMPLES * 16,
           recorder_counts.time_samples);
}

static void rotate(struct file_sink *file, int number, const char *path)
{
    static const struct timespec pause = { 0, 2000000 };
    unsigned char next_head[4096], end[64];
    char name[4200], settings[64];
    struct profile_log_next next;
    int fd;

    memset(&next, 0, sizeof next);
    nanosleep(&pause, NULL);
    snprintf(name, sizeof name, "%s.part.%d", path, number);
    snprintf(settings, sizeof settings, "engine=harness;facts=types,lifetimes;part=%d",
             number);
    fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && file_sink_open(file, fd) == 0);
    next.sink = &file->sink;
    next.settings = settings;
    next.head = next_head;
    next.head_size = from_hex(head, next_head, sizeof next_head);
    next.trailer = end;
    next.trailer_size = from_hex(trailer, end, sizeof end);
    pthread_mutex_lock(&gil);
    recorder_lock();
    next.first_key = recorder_next_key();
    CHECK(profile_log_begin_next(&next, recorder_now()) == 0);
    recorder_rotate(&next);
    recorder_unlock();
    pthread_mutex_unlock(&gil);
    CHECK(next.ended == 0);
}

static void run_in_parts(const char *path)
{
    static struct file_sink files[PARTS + 1];
    pthread_t thread[ALLOCATING + TIMED];
    char name[4200];
    int i, fd;

    /* many stacks: each segment must contain the stacks it uses */
    stacks = SAMPLES;
    snprintf(name, sizeof name, "%s.part.1", path);
    fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && file_sink_open(&files[1], fd) == 0);
    recorder_open(&files[1].sink, totals);
    recorder_expect_outcomes(1);
    records(head);
    CHECK(recorder_start("engine=harness;clock=1;facts=types,lifetimes") == 0);
    for (i = 0; i < ALLOCATING + TIMED; i++)
        CHECK(pthread_create(thread + i, NULL, i < ALLOCATING
                             ? allocate : take_time_samples, NULL) == 0);
    for (i = 2; i <= PARTS; i++) {
        rotate(&files[i], i, path);
        close(files[i - 1].fd);
    }
    for (i = 0; i < ALLOCATING + TIMED; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    recorder_stop();
    records(trailer);
    CHECK(recorder_close() == 0);
    close(files[PARTS].fd);
    printf("%" PRId64 " %" PRId64 " %d %" PRId64 "\n", recorder_counts.samples,
           recorder_counts.lost, ALLOCATING * SAMPLES * 16,
           recorder_counts.time_samples);
}

static void fork_a_child(const char *path)
{
    static struct file_sink file;
    int status, fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    pid_t child;

    CHECK(fd >= 0 && file_sink_open(&file, fd) == 0);
    recorder_open(&file.sink, totals);
    records(head);
    CHECK(recorder_start("engine=harness") == 0);
    recorder_lock();            /* as if another thread had the lock during the fork */
    fflush(stdout);
    child = fork();
    if (child == 0) {
        CHECK(recorder_forget());
        CHECK(!recorder_forget());
        CHECK(fcntl(fd, F_GETFD) < 0);
        CHECK(recorder_allocation(16, 1000, 0, walk) == 0);
        children_count();
        children_count();
        recorder_stop();
        CHECK(recorder_close() == 0);
        _exit(0);
    }
    recorder_unlock();
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* the parent does not count a child that is sampled; this child counts its own child */
    child = fork();
    if (child == 0) {
        CHECK(recorder_forget());
        children_count();
        children_begin();
        children_followed();
        children_followed();
        child = fork();
        if (child == 0) {
            children_forked();
            children_count();
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(children_news() == 1);
        children_end();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    recorder_stop();
    records(trailer);
    CHECK(recorder_close() == 0);
    close(fd);
}

int main(int arguments, char **argument)
{
    char second[4096], forked[4096];

    CHECK(arguments == 4);
    head = argument[2];
    trailer = argument[3];
    snprintf(second, sizeof second, "%s.2", argument[1]);
    snprintf(forked, sizeof forked, "%s.forked", argument[1]);
    check_a_time_sample_never_waits();
    run(argument[1]);
    fork_a_child(forked);
    run(second);
    run_in_parts(argument[1]);
    return 0;
}
