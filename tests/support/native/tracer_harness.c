/* Attach to a child of this program's, which has its memory: so addresses are the same.
   Prints "ok", or what was wrong.

   tracer_harness LIBRARY: one whose function `called` is called with the frame. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tracer.h"

#define TIMES 50

/* what both see */
static struct shared {
    volatile int allocated, called, woken, is_ending;
} *shared;

static void check(bool good, const char *what)
{
    if (!good) {
        printf("%s\n", what);
        exit(1);
    }
}

/* in the child: of RPyGilAllocate()'s kind */
static void allocate(void)
{
    free(malloc(100));
    shared->allocated++;
}

/* in the child; the library calls it */
void was_called(void)
{
    __sync_fetch_and_add(&shared->called, 1);
}

static void be_traced(bool is_busy)
{
    while (!shared->is_ending) {
        struct timeval second = {.tv_sec = 1};
        if (is_busy)
            getppid();
        else if (select(0, NULL, NULL, NULL, &second) != 0)
            shared->woken++;
        free(malloc(1000));
    }
    _exit(0);
}

static struct tracer_request request_for(pid_t pid, const char *library)
{
    uint64_t create = (uint64_t)(uintptr_t)pthread_create;
    uint64_t our_allocate = (uint64_t)(uintptr_t)allocate;
    return (struct tracer_request){
        .pid = pid, .tid = pid, .milliseconds = 10000,
        .create = create, .our_create = create,
        .open = (uint64_t)(uintptr_t)dlopen, .find = (uint64_t)(uintptr_t)dlsym,
        .errno_location = (uint64_t)(uintptr_t)__errno_location,
        .allocate = our_allocate, .our_allocate = our_allocate,
        .library = library, .function = "called", .socket = "nobody",
    };
}

static void trace(bool is_busy, const char *library)
{
    int status;
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0)
        be_traced(is_busy);
    struct tracer_request request = request_for(pid, library);
    for (int i = 1; i <= TIMES; i++) {
        check(tracer_enter(&request) == 0, "tracer_enter");
        check(shared->allocated == i, "what was to be called before");
        check(tracer_leave() == 0, "tracer_leave");
        for (int wait = 0; shared->called < i && wait < 10000; wait++)
            usleep(1000);
        check(shared->called == i, "the thread");
    }
    check(waitpid(pid, &status, WNOHANG) == 0, "the process ended");
    request.milliseconds = 0;
    request.our_create++;           /* it is not the same code */
    int error = tracer_enter(&request);
    check(error == ENOEXEC || error == EAGAIN, "another program");
    shared->is_ending = 1;
    check(waitpid(pid, &status, 0) == pid && status == 0, "its end");
    check(shared->woken == 0, "its sleep was interrupted");
    check(tracer_enter(&request) == ESRCH, "a process that is gone");
}

int main(int argc, char **argv)
{
    check(argc == 2, "usage: tracer_harness LIBRARY");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap");
    trace(true, argv[1]);
    trace(false, argv[1]);
    printf("ok\n");
    return 0;
}
