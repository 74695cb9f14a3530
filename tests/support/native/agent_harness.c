/* native/attach/agent.c, with a PyPy that only writes down what it is asked for.
   agent_harness FOLDER: where its socket may be.  Prints "ok", or what was wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "frame.h"

#define PAGE 4096

static char asked[256];
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;

static void check(bool good, const char *what)
{
    if (!good) {
        printf("%s (%s)\n", what, strerror(errno));
        exit(1);
    }
}

__attribute__((visibility("default"))) int PyPyGILState_Ensure(void)
{
    pthread_mutex_lock(&gil);
    strcat(asked, "(");
    return 7;
}

__attribute__((visibility("default"))) void PyPyGILState_Release(int state)
{
    strcat(asked, state == 7 ? ")" : "?");
    pthread_mutex_unlock(&gil);
}

__attribute__((visibility("default"))) int PyPyRun_SimpleString(const char *text)
{
    strcat(asked, text);
    return 0;
}

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener;

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap");
    return memory;
}

static struct frame *make_frame(void)
{
    size_t size = PAGE + sizeof(struct frame);
    char *memory = map(size);
    struct frame *frame = (struct frame *)(memory + PAGE);
    frame->memory = (uint64_t)(uintptr_t)memory;
    frame->memory_size = size;
    memcpy(frame->socket, address.sun_path, sizeof frame->socket);
    return frame;
}

static void begin(struct frame *frame)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, agent_run, frame) == 0, "pthread_create");
}

static void unmap(struct frame *frame)
{
    munmap((void *)(uintptr_t)frame->memory, frame->memory_size);
}

static int answer(void)
{
    int fd = accept(listener, NULL, NULL);
    check(fd >= 0, "accept");
    return fd;
}

static void expect(int fd, const char *what)
{
    char message[256] = {0};
    ssize_t size = recv(fd, message, sizeof message - 1, 0);
    check(size >= 0 && strcmp(message, what) == 0, what);
}

/* Returns the agent's end. */
static int expect_here(int fd)
{
    char message[256] = {0};
    check(recv(fd, message, sizeof message - 1, 0) > 1 && message[0] == AGENT_HERE
          && atoi(message + 1) >= 3, message);
    return atoi(message + 1);
}

static void send_job(int fd, int64_t milliseconds, int32_t end_size)
{
    char job[sizeof(struct agent_job) + 8] = {0};
    struct agent_job head = {milliseconds, 2, end_size};
    memcpy(job, &head, sizeof head);
    memcpy(job + sizeof head, "b\0e", 3);
    check(send(fd, job, sizeof head + 4, 0) > 0, "send");
}

static bool is_mapped(void *memory)
{
    unsigned char there;
    return mincore((void *)((uintptr_t)memory / PAGE * PAGE), 1, &there) == 0;
}

static void forget(void)
{
    pthread_mutex_lock(&gil);
    asked[0] = 0;
    pthread_mutex_unlock(&gil);
}

static void expect_asked(const char *what)
{
    pthread_mutex_lock(&gil);
    check(strcmp(asked, what) == 0, asked);
    pthread_mutex_unlock(&gil);
}

static void test_time_is_over(void)
{
    struct frame *frame = make_frame();
    void *code = (void *)(uintptr_t)frame->memory;
    forget();
    begin(frame);
    int fd = answer();
    expect_here(fd);
    send_job(fd, 200, 2);
    expect(fd, "g");
    check(send(fd, "u", 1, 0) == 1, "send");
    expect(fd, "");
    expect_asked("(b)(e)");
    check(!is_mapped(frame) && !is_mapped(code), "its memory is still there");
    close(fd);
}

static void test_stop_and_end(bool is_stop)
{
    struct frame *frame = make_frame();
    forget();
    begin(frame);
    int fd = answer();
    expect_here(fd);
    send_job(fd, 1000000, 2);
    expect(fd, "g");
    /* a second one is told to go */
    struct frame *second = make_frame();
    begin(second);
    int other = answer();
    expect(other, "eanother command is attached to it");
    check(is_mapped(second), "the stopped thread may be in it");
    check(send(other, "u", 1, 0) == 1, "send");
    expect(other, "");
    close(other);
    check(!is_mapped(second), "the second one's memory is still there");
    check(is_mapped(frame), "its memory is gone");
    usleep(100000);
    if (is_stop) {
        check(send(fd, "s", 1, 0) == 1, "send");
        expect(fd, "");
        close(fd);
    } else {
        close(fd);
        usleep(300000);
    }
    expect_asked("(b)(e)");
    unmap(frame);
}

static void test_wrong_jobs(void)
{
    for (int i = 0; i < 3; i++) {
        struct frame *frame = make_frame();
        forget();
        begin(frame);
        int fd = answer();
        expect_here(fd);
        if (i == 1)
            check(send(fd, "short", 5, 0) == 5, "send");
        if (i == 2)
            send_job(fd, 1, 1000);
        if (i) {
            check(send(fd, "u", 1, 0) == 1, "send");
            expect(fd, "");
            check(!is_mapped(frame), "its memory is still there");
        }
        close(fd);
        usleep(100000);
        expect_asked("");
        if (i == 0)
            unmap(frame);       /* nobody said that no thread is in it */
    }
}

static void test_nobody_waits(void)
{
    struct frame *frame = make_frame();
    forget();
    memcpy(frame->socket, "/nobody", sizeof "/nobody");
    begin(frame);
    usleep(300000);
    expect_asked("");
    unmap(frame);
}

/* The child has nothing of the agent's. */
static void test_fork(void)
{
    struct frame *frame = make_frame();
    int status;
    begin(frame);
    int fd = answer();
    int theirs = expect_here(fd);
    send_job(fd, 1000000, 2);
    expect(fd, "g");
    pid_t pid = fork();
    if (pid == 0)
        _exit(lseek(theirs, 0, SEEK_CUR) < 0 && errno == EBADF ? 0 : 1);
    check(waitpid(pid, &status, 0) == pid && status == 0, "the child has it open");
    check(send(fd, "u", 1, 0) == 1 && send(fd, "s", 1, 0) == 1, "send");
    expect(fd, "");
    close(fd);
}

int main(int argc, char **argv)
{
    check(argc == 2, "usage: agent_harness FOLDER");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", argv[1]);
    listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0
          && listen(listener, 2) == 0, "listen");
    test_time_is_over();
    test_stop_and_end(true);
    test_stop_and_end(false);
    test_wrong_jobs();
    test_nobody_waits();
    test_fork();
    printf("ok\n");
    return 0;
}
