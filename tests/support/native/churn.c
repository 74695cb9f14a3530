/* A library that a test program loads while attach enters the program.  The library's
   threads never rest, and keep() checks that no registers and memory change. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int is_ending;
static volatile long rounds;

/* Allocate memory and load a library, with frequent system calls at which a tracer may stop
   the thread. */
void churn(long count, const char *library)
{
    void *held[64] = {0};
    for (long i = 0; i < count && !is_ending; i++) {
        int at = i % 64;
        free(held[at]);
        /* sizes of all kinds, from malloc's thread cache to separate mappings */
        held[at] = malloc((size_t)16 << (i * 7 % 18));
        if (held[at] == NULL)
            abort();
        memset(held[at], at, 16);
        if (i % 16 == 0) {
            void *handle = dlopen(library, RTLD_NOW);
            if (handle == NULL)
                abort();
            dlclose(handle);
        }
        if (i % 8 == 0)
            getppid();
        __sync_fetch_and_add(&rounds, 1);
    }
    for (int i = 0; i < 64; i++)
        free(held[i]);
}

static void *run(void *library)
{
    churn(INT64_MAX, library);
    return NULL;
}

static pthread_t threads[2];

void begin(const char *library)
{
    /* PyPy frees the string after the call, but the threads use it */
    char *copy = strdup(library);
    if (copy == NULL)
        abort();
    is_ending = 0;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run, copy) != 0)
            abort();
}

long end(void)
{
    is_ending = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return rounds;
}

static volatile sig_atomic_t has_come;

static void come(int number)
{
    (void)number;
    has_come = 1;
}

/* Print "handled" for each SIGUSR1, until stdin ends.  The signal arrives only in
   pselect(), which it must interrupt.  Python's own handlers sometimes miss a signal that
   arrives just before a system call. */
void answer(void)
{
    struct sigaction action = {.sa_handler = come};
    sigset_t blocked, before;
    fd_set wanted;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    if (write(1, "ready\n", 6) != 6)
        abort();
    for (;;) {
        FD_ZERO(&wanted);
        FD_SET(0, &wanted);
        if (pselect(1, &wanted, NULL, NULL, NULL, &before) >= 0)
            return;
        if (errno != EINTR || !has_come)
            abort();
        has_come = 0;
        if (write(1, "handled\n", 8) != 8)
            abort();
    }
}

#define FOR_EACH(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) \
    what(8) what(9) what(10) what(11) what(12) what(13) what(14) what(15)
#define LOAD(n) "vmovdqu 32*" #n "(%[from]), %%ymm" #n "\n"
#define STORE(n) "vmovdqu %%ymm" #n ", 32*" #n "(%[to])\n"
#define CLOBBERED(n) "xmm" #n,

/* Check that system calls preserve errno, the memory below the stack pointer, and all
   registers that they should preserve.  Returns the name of a changed value, or NULL. */
const char *keep(long count)
{
    static const char *const names[] = {"rbp", "r8", "r9", "r12", "r13", "r14", "r15"};
    uint64_t from[64], to[64];
    if (!__builtin_cpu_supports("avx"))
        return "no AVX";
    for (int i = 0; i < 64; i++)
        from[i] = 0x0123456789abcdefu * (i + 1);
    for (long i = 0; i < count; i++) {
        uint64_t left[8] = {0};
        errno = 77;
        memset(to, 0, sizeof to);
        __asm__ volatile(
            FOR_EACH(LOAD)
            "push %%rbp\n"
            "mov %[left], %%rbx\n"
            "mov $101, %%rbp\n mov $102, %%r8\n mov $103, %%r9\n mov $104, %%r12\n"
            "mov $105, %%r13\n mov $106, %%r14\n mov $107, %%r15\n"
            "movq $108, -128(%%rsp)\n"
            "mov $110, %%eax\n syscall\n"
            "mov %%rbp, (%%rbx)\n mov %%r8, 8(%%rbx)\n mov %%r9, 16(%%rbx)\n"
            "mov %%r12, 24(%%rbx)\n mov %%r13, 32(%%rbx)\n mov %%r14, 40(%%rbx)\n"
            "mov %%r15, 48(%%rbx)\n"
            "mov -128(%%rsp), %%rax\n mov %%rax, 56(%%rbx)\n"
            "pop %%rbp\n"
            FOR_EACH(STORE)
            : : [from] "S"(from), [to] "D"(to), [left] "d"(left)
            : FOR_EACH(CLOBBERED) "rax", "rbx", "rcx", "r8", "r9", "r11", "r12", "r13",
              "r14", "r15", "memory", "cc");
        for (int r = 0; r < 7; r++)
            if (left[r] != 101u + r)
                return names[r];
        if (left[7] != 108)
            return "the red zone";
        if (memcmp(from, to, sizeof from) != 0)
            return "ymm";
        if (errno != 77)
            return "errno";
    }
    return NULL;
}
