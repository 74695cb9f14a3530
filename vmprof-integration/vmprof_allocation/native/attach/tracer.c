#define _GNU_SOURCE
#pragma GCC visibility push(default)
#include "tracer.h"
#pragma GCC visibility pop

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"
#include "registers.h"
#include "safe_place.h"
#include "stub.h"

#define PAGE 4096
/* size in bytes of the stack on which the stopped thread runs the stub; the functions that
   the stub calls need less than a tenth */
#define STACK_SIZE 65536
#define FRAME_SIZE ((sizeof(struct frame) + PAGE - 1) / PAGE * PAGE)
#define MEMORY_SIZE (PAGE + FRAME_SIZE + STACK_SIZE)
/* time limit until a thread stops, or has created the new thread */
#define STEP_MILLISECONDS 5000
#define NO_DEADLINE INT64_MAX
/* interval at which a thread that waits in a system call is examined */
#define LOOK_MILLISECONDS 20
#define SPINS 1000
#define SYSCALL_STOP (SIGTRAP | 0x80)
#define ALL_SIGNALS (~(uint64_t)0)
/* number of bytes at the beginning of a function that is_same() compares */
#define SAME 16
/* how often the new thread checks `is_left`, every 10 ms (see frame.h) */
#define LOOKS 1000
/* upper limit for the size of RPyGilAllocate() in bytes */
#define ALLOCATE_SIZE 512

/* The present injection */
static struct {
    pid_t pid, tid;
    /* registers when the thread was stopped, and the registers with which it continues
       if this process is killed */
    struct registers registers, resumed;
    /* registers for system calls (registers_call()) */
    struct registers caller;
    /* signal mask of the thread */
    uint64_t mask;
    /* address of the mapped memory with the code, the frame and the stack; or 0 */
    uint64_t memory;
    /* descriptor of /proc/PID/mem, which keeps its meaning if the process ends; or 0 */
    int file;
    sigset_t our_mask;
    /* whether the process got SIGSTOP while the thread was running the injection */
    bool is_to_stop;
} traced;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static long request(int what, uintptr_t address, uintptr_t data)
{
    return ptrace(what, traced.tid, address, data);
}

/* Wait until the thread stops.  Returns 0, ETIMEDOUT, or ESRCH if the thread has ended. */
static int wait_for_stop(int *status, int64_t deadline)
{
    /* without a deadline, block in waitpid(): a thread that is woken runs at once, even
       if other processes use the processors */
    int how = deadline == NO_DEADLINE ? __WALL : __WALL | WNOHANG;
    for (int i = 0;; i++) {
        pid_t found = waitpid(traced.tid, status, how);
        if (found < 0 && errno != EINTR)
            return ESRCH;
        if (found == traced.tid)
            return WIFSTOPPED(*status) ? 0 : ESRCH;
        if (now() >= deadline)
            return ETIMEDOUT;
        /* most stops come at once, and the thread should continue soon */
        if (i < SPINS)
            sched_yield();
        else
            usleep(50);
    }
}

/* Return the signal that a stop is about to deliver, or 0 if the stop has another
   reason. */
static int signal_of(int status)
{
    int number = WSTOPSIG(status);
    return status >> 16 || number == SYSCALL_STOP ? 0 : number;
}

/* Get the kernel's description of the thread's stop.  Returns false if the kernel is older
   than 5.3, and in some sandboxes. */
static bool get_info(struct __ptrace_syscall_info *info)
{
    return request(PTRACE_GET_SYSCALL_INFO, sizeof *info, (uintptr_t)info) > 0;
}

/* Return whether a stop is at the beginning of a system call. */
static bool is_entry(int status)
{
    struct __ptrace_syscall_info info;
    return WSTOPSIG(status) == SYSCALL_STOP
           && (!get_info(&info) || info.op != PTRACE_SYSCALL_INFO_EXIT);
}

/* Return whether the kernel is about to make the thread's system call again. */
static bool will_be_made_again(const struct registers *registers)
{
    if (registers->number < 0)
        return false;
    switch (-registers_result(registers)) {
    case ERESTARTSYS: case ERESTARTNOINTR: case ERESTARTNOHAND:
    case ERESTART_RESTARTBLOCK:
        return true;
    }
    return false;
}

/* Return whether the thread is about to handle a signal.  In this case, the kernel may not
   make the interrupted system call again. */
static bool has_signal(void)
{
    char path[64], line[256];
    unsigned long long value, pending = 0, blocked = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)traced.pid,
             (int)traced.tid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return true;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "SigPnd: %llx", &value) == 1
                || sscanf(line, "ShdPnd: %llx", &value) == 1)
            pending |= value;
        sscanf(line, "SigBlk: %llx", &blocked);
    }
    fclose(file);
    return (pending & ~blocked) != 0;
}

/* Return whether the thread executes RPyGilAllocate(), which must not run twice at once. */
static bool is_in_lock_maker(const struct tracer_request *wanted)
{
    return registers_pc(&traced.registers) - wanted->allocate < ALLOCATE_SIZE;
}

/* Return whether the thread, interrupted outside of system calls, is at a safe place in
   PyPy's code.  Prepares `traced.caller` for a system call from there. */
static bool is_in_safe_code(const struct tracer_request *wanted)
{
    return wanted->is_code_allowed
           && registers_borrow_call(traced.tid, &traced.caller, wanted->syscall)
           && !(wanted->allocate && is_in_lock_maker(wanted))
           && is_safe_code(traced.pid, traced.tid, registers_pc(&traced.registers),
                           wanted->ensure);
}

/* Return whether the thread is at a safe place.  Sets `traced.registers`, `traced.caller`
   and `wanted->is_in_code`. */
static bool is_safe(struct tracer_request *wanted, int status)
{
    struct registers *registers = &traced.registers;
    if (!registers_read(traced.tid, registers))
        return false;
    traced.caller = *registers;
    bool is_interrupted = status >> 16 == PTRACE_EVENT_STOP
                          && WSTOPSIG(status) == SIGTRAP;
    wanted->is_in_code = is_interrupted && is_in_safe_code(wanted);
    if (wanted->is_in_code)
        return true;
    if (!(is_interrupted || (WSTOPSIG(status) == SYSCALL_STOP && !is_entry(status))))
        return false;
    if (registers->number < 0 || !registers_are_behind_call(traced.tid, registers))
        return false;
    if (will_be_made_again(registers)
            && (is_interrupted != registers_tell_later || has_signal()))
        return false;
    return is_safe_place(traced.pid, traced.tid, registers);
}

/* Let the thread continue, with the signal that it was about to get.  If `is_ours`, the
   thread runs the injection, and must not stop for SIGSTOP; let_go() sends this signal. */
static void go_on(int how, int status, bool is_ours)
{
    int number = signal_of(status);
    if (is_ours && number == SIGSTOP) {
        traced.is_to_stop = true;
        number = 0;
    }
    request(how, 0, number);
}

/* Detach from the thread, after stopping it if it is running. */
static void let_go(int status, bool is_stopped)
{
    int64_t deadline = now() + STEP_MILLISECONDS;
    if (!is_stopped) {
        request(PTRACE_INTERRUPT, 0, 0);
        if (wait_for_stop(&status, deadline) != 0)
            return;             /* the kernel detaches when this process ends */
    }
    request(PTRACE_DETACH, 0, signal_of(status));
    if (traced.is_to_stop)
        kill(traced.pid, SIGSTOP);
}

static int find_safe_place(struct tracer_request *wanted)
{
    struct __ptrace_syscall_info info;
    int64_t deadline = now() + wanted->milliseconds, look;
    int status = 0, error;
    request(PTRACE_INTERRUPT, 0, 0);
    error = wait_for_stop(&status, now() + STEP_MILLISECONDS);
    if (error == 0) {
        /* ENOSYS, because the end of an injected system call could not be recognized */
        int refused = get_info(&info) ? registers_check(traced.tid) : ENOSYS;
        if (refused) {
            let_go(status, true);
            return refused;
        }
    }
    while (error == 0) {
        if (is_safe(wanted, status))
            return 0;
        wanted->pc = registers_pc(&traced.registers);
        bool is_stopping = status >> 16 == PTRACE_EVENT_STOP
                           && WSTOPSIG(status) != SIGTRAP;
        if (now() >= deadline || is_stopping) {
            let_go(status, true);
            return EAGAIN;
        }
        go_on(PTRACE_SYSCALL, status, false);
        look = now() + LOOK_MILLISECONDS;
        error = wait_for_stop(&status, look);
        if (error == ETIMEDOUT) {
            request(PTRACE_INTERRUPT, 0, 0);
            error = wait_for_stop(&status, now() + STEP_MILLISECONDS);
        }
    }
    return error;
}

/* Let the thread run until the end of the system call after which the program counter is
   `behind`, and read the registers there.  Returns 0 or an errno. */
static int run_until(uint64_t behind, struct registers *registers, int64_t deadline)
{
    int status = 0;
    if (request(PTRACE_SYSCALL, 0, 0) < 0)
        return errno;
    for (;;) {
        int error = wait_for_stop(&status, deadline);
        if (error)
            return error;
        if (!registers_read(traced.tid, registers))
            return errno;
        if (registers_pc(registers) == behind && WSTOPSIG(status) == SYSCALL_STOP
                && !is_entry(status))
            return 0;
        go_on(PTRACE_SYSCALL, status, true);
    }
}

/* Set the registers and the signal mask of the thread. */
static int set(const struct registers *registers, uint64_t mask)
{
    if (!registers_write(traced.tid, registers)
            || request(PTRACE_SETSIGMASK, sizeof mask, (uintptr_t)&mask) < 0)
        return errno;
    return 0;
}

/* Let the stopped thread make a system call, by the instruction before the program counter
   in `traced.caller`.  Returns the call's result, or -errno.  If this process is
   killed between the beginning and the end of the call, the thread is lost; this is the
   only such moment.  So the call has no time limit. */
static int64_t call(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    struct registers registers = traced.caller;
    registers_call(&registers, number, (uint64_t[]){a, b, c, d, -1, 0});
    registers_forget(&registers);
    int error = set(&registers, ALL_SIGNALS);
    if (error == 0)
        error = run_until(registers_pc(&traced.caller), &registers, NO_DEADLINE);
    if (error == 0)
        error = set(&traced.resumed, traced.mask);
    return error ? -error : registers_result(&registers);
}

static int write_memory(uint64_t address, const void *from, size_t size)
{
    ssize_t written = pwrite(traced.file, from, size, (off_t)address);
    if (written < 0)
        return errno;
    return (size_t)written == size ? 0 : EIO;
}

static int open_memory(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)traced.pid);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    traced.file = fd;
    return 0;
}

/* Return whether the function at `there` in the other process begins with the same bytes
   as the function at `here` in this process. */
static bool is_same(uint64_t there, uint64_t here)
{
    for (uint64_t i = 0; i < SAME; i += sizeof(long)) {
        errno = 0;
        long word = request(PTRACE_PEEKTEXT, there + i, 0);
        if (errno || memcmp(&word, (const char *)here + i, sizeof word) != 0)
            return false;
    }
    return true;
}

/* Compute the registers with which the thread continues if this process is killed. */
static void resolve(void)
{
    traced.resumed = traced.registers;
    if (will_be_made_again(&traced.registers))
        registers_make_again(&traced.resumed);
    registers_forget(&traced.resumed);
}

static void fill(struct frame *frame, const struct tracer_request *request)
{
    frame->create = request->create;
    frame->self = request->self;
    frame->detach = request->detach;
    frame->sleep = request->sleep;
    frame->unmap = request->unmap;
    frame->errno_location = request->errno_location;
    frame->allocate = request->allocate;
    frame->ensure = request->ensure;
    frame->release = request->release;
    frame->run = request->run;
    frame->mask = traced.mask;
    frame->looks = LOOKS;
    snprintf(frame->program, sizeof frame->program, "%s", request->program);
    frame->memory = traced.memory;
    frame->memory_size = MEMORY_SIZE;
    registers_save(&traced.resumed, frame->registers);
}

/* Write the stub's code and its frame into the mapped memory. */
static int write_all(const struct tracer_request *request)
{
    static struct frame frame;
    static char code[PAGE];
    size_t size = stub_end - stub_begin;
    memset(&frame, 0, sizeof frame);
    fill(&frame, request);
    memcpy(code, stub_begin, size);
    uint64_t resumed = registers_pc(&traced.resumed);
    memcpy(code + (stub_resume - stub_begin), &resumed, sizeof resumed);
    int error = write_memory(traced.memory, code, size);
    return error ? error : write_memory(traced.memory + PAGE, &frame, sizeof frame);
}

/* Map the memory for code, frame and stack by one call, writable and executable.  A
   process in which PyPy's JIT runs is allowed to map such memory. */
static int map(void)
{
    int64_t at = call(SYS_mmap, 0, MEMORY_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS);
    if (at < 0 && at > -PAGE)
        return -at;
    traced.memory = at;
    return 0;
}

/* Let the thread run the stub until it has created the new thread. */
static int run_stub(void)
{
    struct registers registers = traced.registers;
    registers_enter(&registers, traced.memory, traced.memory + PAGE,
                    traced.memory + MEMORY_SIZE);
    registers_forget(&registers);
    int error = set(&registers, ALL_SIGNALS);
    if (error)
        return error;
    return run_until(traced.memory + (stub_marker - stub_begin), &registers,
                     now() + STEP_MILLISECONDS);
}

/* Read the 32-bit field of the frame at the offset `at`.  Returns false if the memory or
   the process does not exist any more. */
static bool read_frame(size_t at, int32_t *value)
{
    return pread(traced.file, value, sizeof *value,
                 (off_t)(traced.memory + PAGE + at)) == sizeof *value;
}

int tracer_has_gil(void)
{
    int32_t has_gil;
    return !read_frame(offsetof(struct frame, has_gil), &has_gil) || has_gil;
}

int tracer_ask_for_gil(uint64_t ticker)
{
    const int64_t now = -1;
    return write_memory(ticker, &now, sizeof now);
}

static int make_thread(const struct tracer_request *wanted)
{
    if (!is_same(wanted->create, wanted->our_create)
            || (wanted->allocate && !is_same(wanted->allocate, wanted->our_allocate)))
        return ENOEXEC;
    int32_t result;
    int error = open_memory();
    if (error == 0)
        error = map();
    if (error == 0)
        error = write_all(wanted);
    if (error == 0 && (error = run_stub()) == 0) {
        error = read_frame(offsetof(struct frame, result), &result) ? result : EIO;
        if (error == 0)
            return 0;
    }
    if (traced.memory && error != ETIMEDOUT && error != ESRCH) {
        call(SYS_munmap, traced.memory, MEMORY_SIZE, 0, 0);
        traced.memory = 0;
    }
    /* EAGAIN from the other process means that it cannot create a thread, and that trying
       again does not help */
    return error == EAGAIN ? ENOMEM : error;
}

/* Block all signals of this process, so that nothing interrupts the injection. */
static void hold_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &traced.our_mask);
}

int tracer_enter(struct tracer_request *wanted)
{
    wanted->pc = 0;
    if (strlen(wanted->program) >= FRAME_MAX_PROGRAM)
        return E2BIG;
    if (traced.file)
        close(traced.file);
    memset(&traced, 0, sizeof traced);
    traced.pid = wanted->pid;
    traced.tid = wanted->tid;
    /* without PTRACE_O_EXITKILL, because the thread must survive the end of this process */
    if (request(PTRACE_SEIZE, 0, PTRACE_O_TRACESYSGOOD) < 0)
        return errno;
    hold_signals();
    int error = find_safe_place(wanted);
    if (error == 0) {
        resolve();
        if (request(PTRACE_GETSIGMASK, sizeof traced.mask,
                    (uintptr_t)&traced.mask) < 0) {
            error = errno;
            let_go(0, true);
        } else {
            error = make_thread(wanted);
            if (error == ETIMEDOUT)
                /* the thread continues with the stub by itself */
                let_go(0, false);
            else if (error)
                tracer_leave();
        }
    }
    if (error)
        sigprocmask(SIG_SETMASK, &traced.our_mask, NULL);
    return error;
}

/* On this processor, the kernel restarts a system call with the first argument of the
   thread's last call, which is in no register.  So let the thread make a harmless call with
   the first argument of its interrupted call, by the same instruction. */
static int tell_first_argument(void)
{
    struct registers registers;
    if (!registers_read(traced.tid, &registers))
        return errno;
    uint64_t behind = registers_pc(&registers);
    /* rt_sigprocmask() without masks does nothing, and the thread has made this call
       before (stub.c), in case a filter allows only some calls */
    registers_call(&registers, SYS_rt_sigprocmask,
                   (uint64_t[6]){traced.registers.first, 0, 0, sizeof traced.mask});
    registers_forget(&registers);
    int error = set(&registers, ALL_SIGNALS);
    return error ? error : run_until(behind, &registers, NO_DEADLINE);
}

int tracer_leave(void)
{
    const int32_t yes = 1;
    int status = 0, error = 0;
    if (registers_lack_first && will_be_made_again(&traced.registers))
        error = tell_first_argument();
    /* let the thread stop once more, with its own registers and the signals that have
       arrived; at this stop, the kernel decides whether to make a system call again */
    if (error == 0 && request(PTRACE_INTERRUPT, 0, 0) < 0)
        error = errno;
    if (error == 0)
        error = set(&traced.registers, traced.mask);
    if (error == 0 && request(PTRACE_CONT, 0, 0) < 0)
        error = errno;
    if (error == 0)
        error = wait_for_stop(&status, now() + STEP_MILLISECONDS);
    if (error == 0) {
        let_go(status, true);
        if (traced.memory)
            write_memory(traced.memory + PAGE + offsetof(struct frame, is_left), &yes,
                         sizeof yes);
    }
    sigprocmask(SIG_SETMASK, &traced.our_mask, NULL);
    return error;
}
