/* Threads take samples with recorder.c, as in a program.
 *
 *   recorder_harness PROFILE HEAD TRAILER
 *
 * HEAD and TRAILER are vmprof's first and last records, in hexadecimal.  Prints
 * how many allocation samples there are, how many of those have no stack, how
 * many bytes they stand for, and how many time samples there are.
 *
 * Then a child is forked, in which nothing may be left of it, and another
 * profile is written, to PROFILE.2, by the same threads; and one more in parts, to
 * PROFILE.part.1 and so on, of which each goes on where the one before it ended.
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

#include "file_sink.h"
#include "recorder.h"
#include "stack_table.h"

#define CHECK(condition) \
    do { if (!(condition)) failed(#condition, __LINE__); } while (0)

#define ALLOCATING      3       /* threads */
#define TIMED           2
#define SAMPLES         20000   /* of each thread */
#define LOST            100     /* of this many, one has no stack */
#define PARTS           50

static void failed(const char *what, int where)
{
    fprintf(stderr, "recorder_harness.c:%d: not so: %s\n", where, what);
    exit(3);
}

static const char *head, *trailer;
static int stacks = 300;
static int64_t kept_stacks;
static int goes_on;
/* The program's: allocations come one at a time.  Time samples don't ask. */
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;

static size_t from_hex(const char *hex, unsigned char *bytes, size_t room)
{
    size_t i, size = strlen(hex) / 2;

    CHECK(size <= room);
    for (i = 0; i < size; i++)
        CHECK(sscanf(hex + 2 * i, "%2hhx", bytes + i) == 1);
    return size;
}

static void records(const char *hex)
{
    unsigned char bytes[4096];
    size_t size = from_hex(hex, bytes, sizeof bytes);

    recorder_lock();
    profile_log_bytes(bytes, size);
    recorder_unlock();
}

/* ____________________________________________________________ */
/* what the engine and vmprof do */

static void totals(struct profile_totals *t)
{
    t->allocated = 1;
}

/* vmprof's sample of stack number 'stack' */
static int take_stack(int64_t stack)
{
    int64_t words[] = { 1, 4, 1, 8 * (stack + 1), 1, 8, 0 };
    char record[1 + sizeof words] = "\x01";

    memcpy(record + 1, words, sizeof words);
    return recorder_stack(record, sizeof record);
}

static __thread int64_t current;        /* sample */

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
            key = 0;            /* a known one is never lost */
        pthread_mutex_lock(&gil);
        sample = recorder_allocation(16, 1000, key, walk);
        CHECK(sample > 0);
        CHECK(!recorder_has_lock());
        CHECK(recorder_next_interval() > 0);
        if (current % 3 == 0) {
            recorder_lock();
            profile_log_want(recorder_sampled_stack());
            recorder_unlock();
        }
        if (current % 10 == 0) {
            CHECK(recorder_begin_facts(current));
            CHECK(recorder_has_lock());
            recorder_young(sample, FACTS_PROMOTED, 7, 0, 0);
            recorder_freed(sample, 0);
            recorder_event(FACTS_MINOR, recorder_now(), 1);
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
        if (recorder_begin_time_sample(i % 2)) {
            /* the handler of another signal, that comes meanwhile */
            CHECK(!recorder_begin_time_sample(1));
            CHECK(take_stack(i % stacks));
            recorder_end_time_sample();
        }
    return NULL;
}

/* what the program's other threads do to it */
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
    /* longer than between two looks of the flusher's */
    struct timespec pause = { 0, 300000000 };
    int i, fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);

    goes_on = 1;
    CHECK(pthread_create(&disturber, NULL, disturb, NULL) == 0);
    CHECK(fd >= 0 && file_sink_open(&file, fd) == 0);
    CHECK(recorder_allocation(16, 1000, 0, walk) == 0);
    recorder_open(&file.sink, totals);
    records(head);
    CHECK(recorder_start("engine=harness") == 0);
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
    recorder_note("ended=");    /* one that waits too long is given up */
    close(fd);
    CHECK(recorder_counts.samples == ALLOCATING * SAMPLES);
    /* of each two, the one inside the other; or the other if it may not wait */
    CHECK(recorder_counts.dropped == TIMED * SAMPLES);
    printf("%" PRId64 " %" PRId64 " %d %" PRId64 "\n", recorder_counts.samples,
           recorder_counts.lost, ALLOCATING * SAMPLES * 16,
           recorder_counts.time_samples);
}

/* Each stack that was wanted is there, once, also if the table was full meanwhile. */
static int64_t define_kept(void)
{
    static struct stack_kept kept;
    int64_t count = 0;

    memset(&kept, 0, sizeof kept);
    recorder_lock();
    while (stack_table_next_kept(&kept)) {
        const int64_t *words = kept.word + STACK_MAX_WORDS - kept.count;
        CHECK(kept.count == 4 && words[0] == 1 && words[1] % 8 == 0 &&
              words[1] > 0 && words[1] <= 8 * stacks && words[2] == 1 &&
              words[3] == 8);
        CHECK(kept.number > 0);
        CHECK(profile_log_define(words, kept.count) > 0);
        count++;
    }
    stack_table_drop();
    recorder_unlock();
    return count;
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
    snprintf(settings, sizeof settings, "engine=harness;part=%d", number);
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
    CHECK(profile_log_begin_next(&next, recorder_now()) == 0);
    recorder_rotate(&next);
    recorder_unlock();
    kept_stacks += define_kept();
    pthread_mutex_unlock(&gil);
    CHECK(next.ended == 0);
}

static void run_in_parts(const char *path)
{
    static struct file_sink files[PARTS + 1];
    pthread_t thread[ALLOCATING + TIMED];
    char name[4200];
    int i, fd;

    stacks = SAMPLES;           /* more than the table holds */
    snprintf(name, sizeof name, "%s.part.1", path);
    fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && file_sink_open(&files[1], fd) == 0);
    recorder_open(&files[1].sink, totals);
    records(head);
    CHECK(recorder_start("engine=harness;clock=1") == 0);
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
    CHECK(kept_stacks > 0);
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
    recorder_lock();            /* as by another thread of the parent's */
    fflush(stdout);
    child = fork();
    if (child == 0) {
        CHECK(recorder_forget());
        CHECK(!recorder_forget());
        CHECK(fcntl(fd, F_GETFD) < 0);
        CHECK(recorder_allocation(16, 1000, 0, walk) == 0);
        recorder_count_child();
        recorder_count_child();
        recorder_stop();
        CHECK(recorder_close() == 0);
        _exit(0);
    }
    recorder_unlock();
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
    run(argument[1]);
    fork_a_child(forked);
    run(second);
    run_in_parts(argument[1]);
    return 0;
}
