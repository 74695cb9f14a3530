#define _GNU_SOURCE
#pragma GCC visibility push(default)
#include "agent.h"
#pragma GCC visibility pop

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

#define MAX_JOB 65536
/* out of the program's way */
#define LOWEST_FD 512
/* who attached has just been told that nothing comes of it */
#define UNMAP_MILLISECONDS 10000

/* of PyPy */
static struct {
    int (*ensure)(void);
    void (*release)(int);
    int (*run)(const char *);
} python;

static struct {
    int is_busy;
    int fd;
    bool is_known_to_fork;
} agent = {.fd = -1};

/* What brought this here; NULL: it is gone. */
struct memory {
    void *start;
    size_t size;
};

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* The thread is not in the child, where nobody else would close it. */
static void forget_in_child(void)
{
    if (agent.fd >= 0)
        close(agent.fd);
    agent.fd = -1;
    agent.is_busy = 0;
}

static int call(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    memcpy(address.sun_path, path, sizeof address.sun_path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static void say(int fd, char what, const char *text)
{
    char message[256] = {what};
    strncpy(message + 1, text, sizeof message - 2);
    send(fd, message, strlen(message), MSG_NOSIGNAL);
}

static bool find_python(void)
{
    *(void **)&python.ensure = dlsym(RTLD_DEFAULT, "PyPyGILState_Ensure");
    *(void **)&python.release = dlsym(RTLD_DEFAULT, "PyPyGILState_Release");
    *(void **)&python.run = dlsym(RTLD_DEFAULT, "PyPyRun_SimpleString");
    return python.ensure && python.release && python.run;
}

/* Returns false when the attaching process wants an end, or is gone. */
static bool take(int fd, struct memory *memory)
{
    char what;
    if (recv(fd, &what, 1, 0) != 1 || what != AGENT_UNMAP)
        return false;
    if (memory->start)
        munmap(memory->start, memory->size);
    memory->start = NULL;
    return true;
}

/* The stopped thread may be in that memory until it is said that it is not. */
static void wait_for_unmap(int fd, struct memory *memory)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    if (memory->start && poll(&wanted, 1, UNMAP_MILLISECONDS) == 1)
        take(fd, memory);
}

/* Takes what comes, for so long.  Returns false as take() does. */
static bool listen_for(int fd, int64_t milliseconds, struct memory *memory)
{
    int64_t deadline = now() + milliseconds;
    for (;;) {
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        int64_t left = deadline - now();
        if (left < 0)
            left = 0;
        int found = poll(&wanted, 1, left > 1000000 ? 1000000 : (int)left);
        if (found == 0 && now() >= deadline)
            return true;
        if (found == 0 || (found < 0 && errno == EINTR))
            continue;
        if (found < 0 || !take(fd, memory))
            return false;
    }
}

static void do_job(int fd, struct memory *memory)
{
    struct agent_job job;
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    say(fd, AGENT_HERE, number);
    char *text = malloc(MAX_JOB);
    ssize_t size = text ? recv(fd, text, MAX_JOB, 0) : -1;
    bool is_whole = size > (ssize_t)sizeof job;
    if (is_whole) {
        memcpy(&job, text, sizeof job);
        is_whole = job.begin_size > 0 && job.end_size > 0
                   && (size_t)size == sizeof job + job.begin_size + job.end_size;
    }
    if (is_whole && !find_python())
        say(fd, AGENT_ERROR, "PyPy's functions can't be found in it");
    else if (is_whole) {
        int state = python.ensure();
        say(fd, AGENT_HAS_GIL, "");
        bool goes_on = listen_for(fd, 0, memory);
        if (goes_on)
            python.run(text + sizeof job);
        python.release(state);
        if (goes_on) {
            listen_for(fd, job.milliseconds, memory);
            state = python.ensure();
            python.run(text + sizeof job + job.begin_size);
            python.release(state);
        }
    }
    free(text);
}

void *agent_run(void *argument)
{
    struct frame *frame = argument;
    /* the frame is in it, and may be gone, next */
    struct memory memory = {(void *)(uintptr_t)frame->memory, frame->memory_size};
    pthread_detach(pthread_self());
    pthread_setname_np(pthread_self(), "vmprof-attach");
    int fd = call(frame->socket);
    if (fd < 0)
        return NULL;            /* nobody waits any more */
    if (__atomic_exchange_n(&agent.is_busy, 1, __ATOMIC_ACQ_REL)) {
        say(fd, AGENT_ERROR, "another command is attached to it");
        wait_for_unmap(fd, &memory);
        close(fd);
        return NULL;
    }
    agent.fd = fd;
    if (!agent.is_known_to_fork)
        agent.is_known_to_fork = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    do_job(fd, &memory);
    wait_for_unmap(fd, &memory);
    agent.fd = -1;
    /* who sees the end may begin anew */
    __atomic_store_n(&agent.is_busy, 0, __ATOMIC_RELEASE);
    close(fd);
    return NULL;
}
