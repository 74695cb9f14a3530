/* Tests tracer.c on a forked child, whose functions have the same addresses as here.
 * Prints "ok", or the first failed check.
 *
 *   tracer_harness CASE       one of the cases in main()
 */
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
/* longer than tracer.c waits for an answer of the traced process */
#define SLOW_SECONDS 6

/* memory that parent and child share */
static struct shared {
    volatile int allocated, called, released, woken, is_ending, delayed, handled;
    volatile int is_waiting;
    /* whether another thread has the GIL */
    volatile int is_locked;
} *shared;

static void check(bool good, const char *what)
{
    if (!good) {
        printf("%s\n", what);
        exit(1);
    }
}

/* Replaces RPyGilAllocate() in the child. */
static void allocate(void)
{
    free(malloc(100));
    shared->allocated++;
}

/* Replaces PyGILState_Ensure() in the child: it waits for the GIL. */
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
        .run = ADDRESS(run), .syscall = ADDRESS(syscall), .program = "a program",
    };
}

static bool becomes(volatile int *counter, int count)
{
    for (int wait = 0; *counter != count && wait < 10000; wait++)
        usleep(1000);
    return *counter == count;
}

/* Return the number of mappings that are writable and executable. */
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

/* Install a seccomp filter for this thread and its new threads.  The filter answers the
   system call `number` if the argument `which` is `value`.  Returns the result of
   seccomp(). */
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

/* Delay each mmap() that the tracer makes the child call, before the kernel runs it. */
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

/* Start a child that waits.  Its exit status is 0 if its signals have not changed. */
static pid_t begin_waiting(bool is_slow)
{
    static int listener;
    pthread_t thread;
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid)
        return pid;
    /* allow any process to trace this one, in case Yama restricts tracing to parents */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
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

/* Test a kernel or sandbox that does not report the system call at which a thread is
   stopped: the tracer refuses. */
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

/* Test that the stopped thread continues while the new thread waits for the GIL. */
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

/* Test that the tracer's memory stays mapped as long as the stopped thread may use it. */
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

static void handle(int number)
{
    (void)number;
    shared->handled++;
}

/* Start a child that waits until a signal, or for ever if its system call is restarted. */
static pid_t begin_handling(bool is_restarted)
{
    struct sigaction action = {
        .sa_handler = handle, .sa_flags = is_restarted ? SA_RESTART : 0};
    int ends[2];
    char byte;
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid) {
        check(becomes(&shared->is_waiting, 1), "it begins");
        return pid;
    }
    sigaction(SIGUSR1, &action, NULL);
    if (pipe(ends) != 0)
        _exit(2);
    /* from here on, the child makes no other system call than read() or select() */
    shared->is_waiting = 1;
    while (!shared->is_ending) {
        if (is_restarted ? read(ends[0], &byte, 1) < 0
                         : select(0, NULL, NULL, NULL, NULL) < 0 && errno == EINTR)
            shared->woken++;
    }
    _exit(0);
}

/* Test that a signal that arrives while the thread is stopped has its usual effect on the
   thread's system call. */
static void trace_signals(bool is_restarted)
{
    pid_t pid = begin_handling(is_restarted);
    struct tracer_request request = request_for(pid);
    for (int i = 1; i <= TIMES; i++) {
        check(tracer_enter(&request) == 0, "tracer_enter");
        check(kill(pid, SIGUSR1) == 0, "kill");
        check(tracer_leave() == 0, "tracer_leave");
        check(becomes(&shared->handled, i), "the signal");
        check(becomes(&shared->woken, is_restarted ? 0 : i), "what it waits in");
        check(becomes(&shared->released, i), "the thread");
    }
    kill(pid, SIGKILL);
    check(waitpid(pid, NULL, 0) == pid, "its end");
}

/* Fork a tracer that is killed while it has stopped a thread of 'pid'. */
static void die_inside(pid_t pid, int32_t is_code_allowed)
{
    int status;
    pid_t tracer = fork();
    check(tracer >= 0, "fork");
    if (tracer == 0) {
        struct tracer_request request = request_for(pid);
        request.is_code_allowed = is_code_allowed;
        if (tracer_enter(&request) == 0)
            raise(SIGKILL);
        _exit(1);
    }
    check(waitpid(tracer, &status, 0) == tracer && WIFSIGNALED(status), "tracer_enter");
    check(becomes(&shared->released, 1) && shared->called == 1, "the thread");
}

/* Test that the child continues if the tracer is killed while it has stopped the child's
   thread at a system call. */
static void trace_and_die(void)
{
    pid_t pid = begin_waiting(false);
    die_inside(pid, 0);
    end_waiting(pid);
}

#ifdef __x86_64__
/* The spinning child has values in all registers, in two flags and below the stack pointer,
   and runs only two instructions: "decq spins; jnz". */
#define VALUES 46               /* words in 14 registers and 16 vector registers */
#define BELOW 15                /* tested words below the stack pointer */
struct spun {
    uint64_t values[VALUES], flags, below[BELOW];
};
static struct spun begin_values, end_values;
static volatile uint64_t spins;
void spin(void);
#define EACH(what) \
    what(rax, 0) what(rbx, 1) what(rcx, 2) what(rdx, 3) what(rsi, 4) what(rdi, 5) \
    what(rbp, 6) what(r8, 7) what(r9, 8) what(r10, 9) what(r11, 10) what(r12, 11) \
    what(r13, 12) what(r14, 13)
#define EACH_XMM(what) \
    what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) what(9) \
    what(10) what(11) what(12) what(13) what(14) what(15)
#define LOAD(name, i) "mov begin_values+8*" #i "(%rip), %" #name "\n"
#define STORE(name, i) "mov %" #name ", end_values+8*" #i "(%rip)\n"
#define LOAD_XMM(i) "movdqu begin_values+8*14+16*" #i "(%rip), %xmm" #i "\n"
#define STORE_XMM(i) "movdqu %xmm" #i ", end_values+8*14+16*" #i "(%rip)\n"
#define FLAGS "8*46"
#define BELOWS "8*47"
__asm__(
    ".globl spin\n"
    "spin:\n"
    "push %rbx\n" "push %rbp\n" "push %r12\n" "push %r13\n" "push %r14\n"
    "push %r15\n"
    "mov $-15, %rcx\n"
    "lea begin_values+" BELOWS "+8*15(%rip), %rdx\n"
    "1: mov (%rdx,%rcx,8), %rax\n"
    "mov %rax, (%rsp,%rcx,8)\n"
    "inc %rcx\n"
    "jnz 1b\n"
    EACH_XMM(LOAD_XMM)
    EACH(LOAD)
    "mov %rsp, %r15\n"
    "std\n"
    "stc\n"
    "1: decq spins(%rip)\n"
    "jnz 1b\n"
    EACH(STORE)
    EACH_XMM(STORE_XMM)
    /* neither instruction of the loop changes the carry flag */
    "mov $-15, %rcx\n"
    "lea end_values+" BELOWS "+8*15(%rip), %rdx\n"
    "1: mov (%rsp,%rcx,8), %rax\n"
    "mov %rax, (%rdx,%rcx,8)\n"
    "inc %rcx\n"
    "jnz 1b\n"
    "pushf\n"
    "pop %rax\n"
    "cld\n"
    "and $0x401, %rax\n"
    "mov %rax, end_values+" FLAGS "(%rip)\n"
    "cmp %rsp, %r15\n"
    "je 1f\n"
    "ud2\n"
    "1:\n"
    "pop %r15\n" "pop %r14\n" "pop %r13\n" "pop %r12\n" "pop %rbp\n" "pop %rbx\n"
    "ret\n");

/* Start a child that makes no system calls. */
static pid_t begin_spinning(void)
{
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid) {
        check(becomes(&shared->is_waiting, 1), "it begins");
        return pid;
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    for (int i = 0; i < VALUES; i++)
        begin_values.values[i] = 0x0123456789abcdefu * (i + 1);
    for (int i = 0; i < BELOW; i++)
        begin_values.below[i] = 0x0fedcba987654321u * (i + 1);
    begin_values.flags = 0x401;
    shared->is_waiting = 1;
    errno = 77;
    while (!shared->is_ending) {
        memset(&end_values, 0, sizeof end_values);
        spins = 1000000;
        spin();
        if (memcmp(&begin_values, &end_values, sizeof end_values) != 0 || errno != 77)
            shared->woken++;
    }
    _exit(is_unblocked() ? 0 : 1);
}

static void end_spinning(pid_t pid)
{
    int status;
    shared->is_ending = 1;
    check(waitpid(pid, &status, 0) == pid && status == 0, "its end");
    check(shared->woken == 0, "registers, flags or memory are others");
}

/* Test that a thread without system calls is stopped in code of the library if the request
   allows it, and continues with the same registers and memory. */
static void trace_code(void)
{
    pid_t pid = begin_spinning();
    struct tracer_request request = request_for(pid);
    request.milliseconds = 100;
    check(tracer_enter(&request) == EAGAIN && request.pc != 0, "it was not allowed");
    request.is_code_allowed = 1;
    for (int i = 1; i <= TIMES; i++) {
        check(tracer_enter(&request) == 0, "tracer_enter");
        check(request.is_in_code, "the place");
        check(tracer_leave() == 0, "tracer_leave");
        check(becomes(&shared->released, i) && shared->called == i, "the thread");
    }
    check(is_unmapped(pid), "its memory is still there");
    /* a thread must not be stopped in the allocating function, because the tracer calls it
       */
    request.allocate = request.our_allocate = ADDRESS(spin);
    request.milliseconds = 100;
    check(tracer_enter(&request) == EAGAIN, "it is in allocate()");
    /* a thread must not be stopped in another library, which may hold a lock */
    request.allocate = request.our_allocate = ADDRESS(allocate);
    request.ensure = ADDRESS(usleep);
    check(tracer_enter(&request) == EAGAIN, "it is not in that library");
    end_spinning(pid);
}

/* Test that tracer_ask_for_gil() changes a word of the running process. */
static void trace_ticker(void)
{
    pid_t pid = begin_spinning();
    struct tracer_request request = request_for(pid);
    request.is_code_allowed = 1;
    check(tracer_enter(&request) == 0, "tracer_enter");
    check(tracer_leave() == 0, "tracer_leave");
    check(tracer_ask_for_gil(ADDRESS(&shared->handled)) == 0, "the word");
    check(shared->handled == -1, "it is another one");
    check(tracer_ask_for_gil(8) != 0, "nothing is there");
    check(becomes(&shared->released, 1), "the thread");
    end_spinning(pid);
}

/* Test that the child continues if the tracer is killed while it has stopped the child's
   thread in code. */
static void trace_code_and_die(void)
{
    pid_t pid = begin_spinning();
    die_inside(pid, 1);
    end_spinning(pid);
}
#endif

#ifdef __aarch64__
/* Values of all registers that a system call preserves on AArch64: q0 to q31, fpsr, x1 to
   x7, x9 to x30, and the flags.  On x86-64, churn.c tests this. */
struct values {
    uint64_t vectors[64], others[32];
};
void keep(const struct values *from, struct values *to);
#define EACH_VECTOR(what) \
    what(0, 1) what(2, 3) what(4, 5) what(6, 7) what(8, 9) what(10, 11) what(12, 13) \
    what(14, 15) what(16, 17) what(18, 19) what(20, 21) what(22, 23) what(24, 25) \
    what(26, 27) what(28, 29) what(30, 31)
#define EACH_PAIR(what) \
    what(2, 3) what(4, 5) what(6, 7) what(10, 11) what(12, 13) what(14, 15) \
    what(16, 17) what(18, 19) what(20, 21) what(22, 23) what(24, 25) what(26, 27) \
    what(28, 29)
#define LOAD_VECTOR(a, b) "ldp q" #a ", q" #b ", [x0, #16*" #a "]\n"
#define STORE_VECTOR(a, b) "stp q" #a ", q" #b ", [x0, #16*" #a "]\n"
#define LOAD_PAIR(a, b) "ldp x" #a ", x" #b ", [x0, #8*" #a "]\n"
#define STORE_PAIR(a, b) "stp x" #a ", x" #b ", [x0, #8*" #a "]\n"
__asm__(
    ".globl keep\n"
    "keep:\n"
    "stp x29, x30, [sp, #-112]!\n"
    "stp x19, x20, [sp, #16]\n"
    "stp x21, x22, [sp, #32]\n"
    "stp x23, x24, [sp, #48]\n"
    "stp x25, x26, [sp, #64]\n"
    "stp x27, x28, [sp, #80]\n"
    "str x1, [sp, #96]\n"
    EACH_VECTOR(LOAD_VECTOR)
    "add x0, x0, #512\n"
    "ldr x8, [x0]\n"
    "msr nzcv, x8\n"
    EACH_PAIR(LOAD_PAIR)
    "ldr x1, [x0, #8]\n"
    "ldr x9, [x0, #72]\n"
    "ldr x30, [x0, #240]\n"
    "mov x8, #173\n"           /* getppid() */
    "svc #0\n"
    "ldr x0, [sp, #96]\n"
    EACH_VECTOR(STORE_VECTOR)
    "add x0, x0, #512\n"
    "mrs x8, nzcv\n"
    "str x8, [x0]\n"
    EACH_PAIR(STORE_PAIR)
    "str x1, [x0, #8]\n"
    "str x9, [x0, #72]\n"
    "str x30, [x0, #240]\n"
    "ldp x19, x20, [sp, #16]\n"
    "ldp x21, x22, [sp, #32]\n"
    "ldp x23, x24, [sp, #48]\n"
    "ldp x25, x26, [sp, #64]\n"
    "ldp x27, x28, [sp, #80]\n"
    "ldp x29, x30, [sp], #112\n"
    "ret\n");

static pid_t begin_keeping(void)
{
    struct values from, to;
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid)
        return pid;
    for (int i = 0; i < 64; i++)
        from.vectors[i] = 0x0123456789abcdefu * (i + 1);
    for (int i = 0; i < 32; i++)
        from.others[i] = 0x0fedcba987654321u * (i + 1);
    from.others[0] = 0xb0000000u;
    from.others[8] = from.others[31] = 0;
    while (!shared->is_ending) {
        errno = 77;
        memset(&to, 0, sizeof to);
        keep(&from, &to);
        shared->woken += memcmp(&from, &to, sizeof to) != 0 || errno != 77;
    }
    _exit(0);
}

static void trace_registers(void)
{
    pid_t pid = begin_keeping();
    struct tracer_request request = request_for(pid);
    for (int i = 1; i <= TIMES; i++) {
        check(tracer_enter(&request) == 0, "tracer_enter");
        check(tracer_leave() == 0, "tracer_leave");
        check(becomes(&shared->released, i), "the thread");
    }
    shared->is_ending = 1;
    check(waitpid(pid, NULL, 0) == pid && shared->woken == 0, "registers are others");
}
#endif

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
    request.our_create++;           /* at this address, the process has other code */
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
    else if (strcmp(argv[1], "signals") == 0) {
        trace_signals(false);
        trace_signals(true);
    } else if (strcmp(argv[1], "dies") == 0)
        trace_and_die();
#ifdef __x86_64__
    else if (strcmp(argv[1], "code") == 0)
        trace_code();
    else if (strcmp(argv[1], "ticker") == 0)
        trace_ticker();
    else if (strcmp(argv[1], "code-dies") == 0)
        trace_code_and_die();
#endif
#ifdef __aarch64__
    else if (strcmp(argv[1], "registers") == 0)
        trace_registers();
#endif
    else
        check(false, "no such case");
    printf("ok\n");
    return 0;
}
