/* Tests malloc/ in a process without PyPy: raw_memory.c with a recorder that only counts.
 * The library argv[2] allocates memory, and is loaded and unloaded.
 *
 *   blocks      compare blocks.c with an array of all blocks, at random
 *   undone      begin and end; then the results of dlsym(), the protection of all pages and
 *               the pointers to malloc() must be the same as before
 *   counts      argv[3] rounds of calls of every kind, with a sampling interval of 1 byte
 *   means       argv[3] rounds of calls with a sampling interval of 10000 bytes; compare
 *               the sum of the weights with the true bytes
 *   threads     begin and end argv[3] times while threads call malloc(), load libraries,
 *               fork, and end
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blocks.h"
#include "check.h"
#include "raw_memory.h"

/* ____________________________________________________________ */
/* The recorder */

static int64_t samples, ended, lost, keys, bytes_sampled;
static volatile int64_t before_run;      /* last key of a sample before the current run */
static double weights;
static char name_of_type[128];

int recorder_has_lock(void) { return 0; }
int64_t recorder_raw(struct raw_sample *s, uint64_t key, void (*walk)(void))
{
    (void)key;
    (void)walk;
    __sync_fetch_and_add(&samples, 1);
    __sync_fetch_and_add(&bytes_sampled, s->size);
    weights += (double)s->size / -expm1(-(double)s->size / (double)s->interval);
    s->node = 0;
    return s->key = __sync_add_and_fetch(&keys, 1);
}
void recorder_raw_ended(int64_t key, int is_lost)
{
    CHECK(key > before_run);
    __sync_fetch_and_add(is_lost ? &lost : &ended, 1);
}
void recorder_raw_inherited(const struct raw_sample *s) { (void)s; }
void recorder_raw_type(int64_t number, const char *name)
{
    CHECK(number > 0);
    snprintf(name_of_type, sizeof name_of_type, "%s", name);
}

static size_t no_native(uintptr_t caller, uintptr_t functions[RAW_MEMORY_NATIVE])
{
    (void)caller;
    (void)functions;
    return 0;
}
static uint64_t no_key(const uintptr_t *functions, size_t count)
{
    (void)functions;
    (void)count;
    return 0;
}
static void no_walk(void) { }
static int is_not_ignored(void) { return 0; }
static const struct raw_memory_stacks no_stacks = {
    no_native, no_key, no_walk, is_not_ignored
};

/* ____________________________________________________________ */

static void test_blocks(void)
{
    enum { MOST = 3000 };
    static struct block all[MOST], found;
    int count = 0, round;

    srandom(1);
    for (round = 0; round < 400000; round++) {
        uintptr_t address = 16 * (1 + (uintptr_t)random() % 20000) + (random() & 1) * 0x7f0000000;
        int at = 0;
        while (at < count && all[at].address != address)
            at++;
        CHECK(at == count || blocks_may_have((void *)address));
        if (at < count) {
            CHECK(blocks_take(address, &found) && found.sample.key == all[at].sample.key);
            all[at] = all[--count];
        }
        else {
            CHECK(!blocks_take(address, &found));
            if (count < MOST) {
                all[count] = (struct block){ address, { .key = round + 1 } };
                CHECK(blocks_add(&all[count++]));
            }
        }
    }
    while (count > 0)
        CHECK(blocks_take(all[--count].address, &found));
    for (round = 0; round < 20000; round++)
        CHECK(!blocks_may_have((void *)(uintptr_t)(16 * round)));
    blocks_clear();
}

/* ____________________________________________________________ */

static const char *library;

static void *look_up(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* Return the protection and addresses of all mapped files.  Adjacent mappings with the same
   protection are joined, because the kernel does not always join mappings that it has
   split. */
static char *pages(void)
{
    static char both[2][1 << 18];
    static int which;
    char *text = both[which ^= 1], *to = text, line[512], rights[8], last[8] = "";
    unsigned long start, end, until = 0;
    FILE *file = fopen("/proc/self/maps", "r");

    while (fgets(line, sizeof line, file) != NULL)
        if (strchr(line, '/') != NULL && to - text < (1 << 18) - 512 &&
            sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3) {
            if (start != until || strcmp(rights, last) != 0)
                to += sprintf(to, "until %lx\n%lx %s ", until, start, rights);
            until = end;
            strcpy(last, rights);
        }
    fclose(file);
    *to = '\0';
    return text;
}

static void begin(int64_t interval)
{
    CHECK(raw_memory_plan(interval, 42, 0) == 0);
    CHECK(raw_memory_begin() == 0);
    CHECK(raw_memory_is_on());
}

static int64_t use(void *handle, int rounds)
{
    int64_t (*calls)(int) = (int64_t (*)(int))(uintptr_t)dlsym(handle, "calls");

    CHECK(calls != NULL);
    return calls(rounds);
}

static void test_undone(void)
{
    void *real = look_up("malloc"), *real_free = look_up("free"), *before, *meanwhile;
    char *rights;
    int64_t seen;
    void *(*kept)(size_t);

    before = dlopen(library, RTLD_NOW);
    CHECK(before != NULL);
    rights = pages();
    begin(1);
    CHECK(look_up("malloc") != real && look_up("free") != real_free);
    kept = (void *(*)(size_t))(uintptr_t)look_up("malloc");
    (void)use(before, 1);
    CHECK(samples > 0 && strstr(name_of_type, "raw_memory_user") != NULL);
    raw_memory_end();
    CHECK(!raw_memory_is_on());
    CHECK(look_up("malloc") == real && look_up("free") == real_free);
    CHECK(strcmp(rights, pages()) == 0);
    seen = samples;
    (void)use(before, 10);
    meanwhile = dlopen("libz.so.1", RTLD_NOW);
    CHECK(meanwhile == NULL || look_up("malloc") == real);
    CHECK(samples == seen);
    /* a block from code that kept the address of our malloc() */
    free(kept(100));
    CHECK(samples == seen);
    raw_memory_end();           /* a second call is harmless */
    begin(1);
    (void)use(before, 2000);    /* enough: the first MiB of a thread may have no samples */
    CHECK(samples - seen > 2000);
    raw_memory_end();
}

/* Check that each block is sampled, and ends.  The library frees all blocks, except for the
   bytes that it returns. */
static void test_counts(int rounds)
{
    void *handle;
    int64_t kept;

    begin(1);
    handle = dlopen(library, RTLD_LAZY);        /* loaded after begin(), and bound lazily */
    CHECK(handle != NULL);
    samples = ended = bytes_sampled = 0;
    kept = use(handle, rounds);
    printf("%lld %lld %lld %lld\n", (long long)samples, (long long)bytes_sampled,
           (long long)(samples - ended), (long long)kept);
    raw_memory_end();
}

static void test_means(int rounds)
{
    int64_t (*allocate)(int);
    void *handle = dlopen(library, RTLD_NOW);
    int64_t truth;

    CHECK(handle != NULL);
    allocate = (int64_t (*)(int))(uintptr_t)dlsym(handle, "allocate");
    begin(10000);
    weights = 0;
    truth = allocate(rounds);
    raw_memory_end();
    printf("%.0f %lld\n", weights, (long long)truth);
}

/* ____________________________________________________________ */

static volatile int going = 1;

static void *churn(void *handle)
{
    while (going)
        (void)use(handle, 10);
    return NULL;
}

static void *short_lived(void *handle)
{
    (void)use(handle, 1);
    return NULL;
}

static void *make_threads(void *handle)
{
    while (going) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, short_lived, handle) == 0);
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void *load(void *unused)
{
    while (going) {
        void *handle = dlopen(library, rand() & 1 ? RTLD_NOW : RTLD_LAZY);
        CHECK(handle != NULL);
        (void)use(handle, 1);
        dlclose(handle);
    }
    return unused;
}

static void *make_processes(void *handle)
{
    while (going) {
        pid_t child;
        int status;
        raw_memory_before_fork();
        child = fork();
        if (child == 0) {
            raw_memory_forked(1);
            (void)use(handle, 10);
            _exit(0);
        }
        raw_memory_after_fork();
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        usleep(5000);
    }
    return NULL;
}

static int has_blocks(void)
{
    size_t i;

    for (i = 0; i < BLOCKS_FILTER; i++)
        if (blocks_filter[i] != 0)
            return 1;
    return 0;
}

static void test_threads(int rounds)
{
    void *(*const works[])(void *) = { churn, churn, load, make_threads, make_processes };
    enum { WORKS = sizeof works / sizeof *works };
    pthread_t threads[WORKS];
    void *real = look_up("malloc"), *handle = dlopen(library, RTLD_NOW);
    int i;

    CHECK(handle != NULL);
    for (i = 0; i < WORKS; i++)
        CHECK(pthread_create(&threads[i], NULL, works[i], handle) == 0);
    for (i = 0; i < rounds; i++) {
        int error = raw_memory_plan(1000, (uint64_t)i, 0);
        CHECK(error == 0);
        before_run = keys;
        error = raw_memory_begin();
        CHECK(error == 0);
        usleep(300);
        raw_memory_end();
        /* a thread that was about to take a sample must not add a block to the table */
        usleep(100);
        CHECK(!has_blocks());
        CHECK(look_up("malloc") == real);
    }
    going = 0;
    for (i = 0; i < WORKS; i++)
        pthread_join(threads[i], NULL);
    CHECK(samples > rounds / 10 && lost == 0);
    printf("%lld\n", (long long)samples);
}

int main(int argc, char **argv)
{
    int rounds = argc > 3 ? atoi(argv[3]) : 0;

    library = argv[2];
    raw_memory_prepare(&no_stacks);
    if (strcmp(argv[1], "blocks") == 0)
        test_blocks();
    else if (strcmp(argv[1], "undone") == 0)
        test_undone();
    else if (strcmp(argv[1], "counts") == 0)
        test_counts(rounds);
    else if (strcmp(argv[1], "means") == 0)
        test_means(rounds);
    else
        test_threads(rounds);
    return 0;
}
