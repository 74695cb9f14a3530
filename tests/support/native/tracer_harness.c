/* Get into a child of this program's, which has its memory: so addresses are the same.
   Prints "ok", or what was wrong.

   tracer_harness CASE: one of those in main(). */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame.h"
#include "tracer.h"

#define TIMES 50
/* longer than tracer.c waits for a step */
#define SLOW_SECONDS 6

/* what both see */
static struct shared {
    volatile int allocated, called, released, woken, is_ending, delayed;
    /* somebody else has the GIL */
    volatile int is_locked;
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

/* in the child, where PyPy would have them */
static int ensure(void)
{
    while (shared->is_locked)
        usleep(1000);
    return 7;
}

static void run(const char *program)
{
    if (strcmp(program, "a program") == 0)
        __sync_fetch_and_add(&shared->called, 1);
}

static void give_back(int state)
{
    if (state == 7)
        __sync_fetch_and_add(&shared->released, 1);
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

#define ADDRESS(function) ((uint64_t)(uintptr_t)(function))

static struct tracer_request request_for(pid_t pid)
{
    return (struct tracer_request){
        .pid = pid, .tid = pid, .milliseconds = 10000,
        .create = ADDRESS(pthread_create), .our_create = ADDRESS(pthread_create),
        .self = ADDRESS(pthread_self), .detach = ADDRESS(pthread_detach),
        .sleep = ADDRESS(usleep), .unmap = ADDRESS(munmap),
        .errno_location = ADDRESS(__errno_location),
        .allocate = ADDRESS(allocate), .our_allocate = ADDRESS(allocate),
        .ensure = ADDRESS(ensure), .release = ADDRESS(give_back),
        .run = ADDRESS(run), .program = "a program",
    };
}

static bool becomes(volatile int *counter, int count)
{
    for (int wait = 0; *counter != count && wait < 10000; wait++)
        usleep(1000);
    return *counter == count;
}

/* What it was made to map can be written, and run. */
static int mapped(pid_t pid)
{
    char path[64], line[4096];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "r");
    check(file != NULL, "maps");
    while (fgets(line, sizeof line, file))
        found += strstr(line, " rwxp ") != NULL;
    fclose(file);
    return found;
}

static bool is_unmapped(pid_t pid)
{
    for (int wait = 0; mapped(pid) && wait < 10000; wait++)
        usleep(1000);
    return mapped(pid) == 0;
}

/* Of this thread, and those that it makes: what it answers to the system call `number`
   whose argument `which` is `value`.  Returns what seccomp() did. */
static int filter(int number, int which, uint32_t value, uint32_t answer, int flags)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args) + which * sizeof(uint64_t)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    int result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    check(result >= 0, "seccomp");
    return result;
}

/* Each mmap() of the tracer's takes long; then the kernel makes it. */
static void *delay(void *listener)
{
    struct seccomp_notif asked;
    for (;;) {
        memset(&asked, 0, sizeof asked);
        if (ioctl(*(int *)listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0)
            continue;
        sleep(SLOW_SECONDS);
        shared->delayed++;
        struct seccomp_notif_resp answer = {
            .id = asked.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(*(int *)listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    return NULL;
}

static bool is_unblocked(void)
{
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    return !sigismember(&mask, SIGTERM) && !sigismember(&mask, SIGUSR1);
}

/* One that waits; its status at the end is 0 if its signals are as they were. */
static pid_t begin_waiting(bool is_slow)
{
    static int listener;
    pthread_t thread;
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid)
        return pid;
    if (is_slow) {
        listener = filter(SYS_mmap, 2, PROT_READ | PROT_WRITE | PROT_EXEC,
                          SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
        check(pthread_create(&thread, NULL, delay, &listener) == 0, "pthread_create");
    }
    while (!shared->is_ending) {
        struct timeval tenth = {.tv_usec = 100000};
        if (select(0, NULL, NULL, NULL, &tenth) != 0)
            shared->woken++;
    }
    _exit(is_unblocked() ? 0 : 1);
}

static void end_waiting(pid_t pid)
{
    int status;
    usleep(300000);
    shared->is_ending = 1;
    check(waitpid(pid, &status, 0) == pid, "waitpid");
    check(shared->woken == 0, "its sleep was interrupted");
    check(status == 0, "its signals are blocked, or it was killed");
}

/* A kernel, or a sandbox, that does not say what a thread is stopped at. */
static void trace_without_syscall_info(void)
{
    pid_t pid = begin_waiting(false);
    struct tracer_request request = request_for(pid);
    filter(SYS_ptrace, 0, PTRACE_GET_SYSCALL_INFO, SECCOMP_RET_ERRNO | EIO, 0);
    int error = tracer_enter(&request);
    end_waiting(pid);
    check(error == ENOSYS, "it is not said what is missing");
    check(shared->called == 0 && shared->allocated == 0, "it was made to run something");
}

static void trace_slow_mmap(void)
{
    pid_t pid = begin_waiting(true);
    struct tracer_request request = request_for(pid);
    int error = tracer_enter(&request);
    if (error == 0)
        check(tracer_leave() == 0, "tracer_leave");
    bool is_called = error == 0 && becomes(&shared->called, 1);
    end_waiting(pid);
    check(is_called, "the thread");
    check(shared->delayed == 1, "it was not slow");
}

/* The stopped thread goes on while the new one waits for the GIL. */
static void trace_a_lock(void)
{
    pid_t pid = begin_waiting(false);
    struct tracer_request request = request_for(pid);
    shared->is_locked = 1;
    check(tracer_enter(&request) == 0, "tracer_enter");
    check(!tracer_has_gil(), "it has the GIL");
    check(tracer_leave() == 0, "tracer_leave");
    usleep(100000);
    check(!tracer_has_gil() && shared->called == 0, "it went on without the GIL");
    check(mapped(pid) == 1, "the new thread's code is gone");
    shared->is_locked = 0;
    check(becomes(&shared->released, 1) && shared->called == 1, "the thread");
    check(is_unmapped(pid), "its memory is still there");
    check(tracer_has_gil(), "it had the GIL");
    end_waiting(pid);
    check(tracer_has_gil(), "of a process that is gone nothing is waited for");
}

/* The memory stays as long as the stopped thread may be in it. */
static void trace_while_it_stands_still(void)
{
    pid_t pid = begin_waiting(false);
    struct tracer_request request = request_for(pid);
    check(tracer_enter(&request) == 0, "tracer_enter");
    check(becomes(&shared->released, 1) && tracer_has_gil(), "the thread");
    usleep(100000);
    check(mapped(pid) == 1, "its memory is gone");
    check(tracer_leave() == 0, "tracer_leave");
    check(is_unmapped(pid), "its memory is still there");
    end_waiting(pid);
}

static void trace_with_too_long_a_program(void)
{
    static char text[FRAME_MAX_PROGRAM + 1];
    pid_t pid = begin_waiting(false);
    struct tracer_request request = request_for(pid);
    memset(text, 'x', FRAME_MAX_PROGRAM);
    request.program = text;
    check(tracer_enter(&request) == E2BIG, "it is not said what is wrong");
    end_waiting(pid);
    check(shared->allocated == 0, "it was made to run something");
}

static void trace(bool is_busy)
{
    int status;
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0)
        be_traced(is_busy);
    struct tracer_request request = request_for(pid);
    for (int i = 1; i <= TIMES; i++) {
        check(tracer_enter(&request) == 0, "tracer_enter");
        check(shared->allocated == i, "what was to be called before");
        check(tracer_leave() == 0, "tracer_leave");
        check(becomes(&shared->released, i) && shared->called == i, "the thread");
    }
    check(is_unmapped(pid), "its memory is still there");
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
    check(argc == 2, "usage: tracer_harness CASE");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap");
    if (strcmp(argv[1], "often") == 0) {
        trace(true);
        trace(false);
    } else if (strcmp(argv[1], "no-syscall-info") == 0)
        trace_without_syscall_info();
    else if (strcmp(argv[1], "slow-mmap") == 0)
        trace_slow_mmap();
    else if (strcmp(argv[1], "lock") == 0)
        trace_a_lock();
    else if (strcmp(argv[1], "stands-still") == 0)
        trace_while_it_stands_still();
    else if (strcmp(argv[1], "too-long") == 0)
        trace_with_too_long_a_program();
    else
        check(false, "no such case");
    printf("ok\n");
    return 0;
}
