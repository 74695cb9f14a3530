#define _GNU_SOURCE
#include "bare_fork.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder.h"

/* descriptors that are closed one by one if the kernel lacks close_range() */
#define MOST_FILES      4096

static void close_all_files(void)
{
    int fd;

#ifdef SYS_close_range
    if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0)
        return;
#endif
    for (fd = 0; fd < MOST_FILES; fd++)
        close(fd);
}

/* Give up the program's files, signal handlers and process group in the new process. */
static void take_leave(pid_t parent, int niceness)
{
    static const char first_to_go[] = "1000\n";
    /* signals of our own faults, and signals that end this process */
    static const int usual[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGALRM };
    size_t i;
    struct rlimit none = { 0, 0 };
    struct sigaction action;
    sigset_t all;
    int number, fd;

    /* Signals for the program's process group must not reach this process.  A stop of
       this process must not be reported to the program, either. */
    setpgid(0, 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_IGN;
    for (number = 1; number < NSIG; number++)
        sigaction(number, &action, NULL);
    action.sa_handler = SIG_DFL;
    for (i = 0; i < sizeof usual / sizeof *usual; i++)
        sigaction(usual[i], &action, NULL);
    setrlimit(RLIMIT_CORE, &none);
    close_all_files();
    (void)!chdir("/");          /* otherwise the program's folder could not be unmounted */
    prctl(PR_SET_NAME, "who-holds");
    /* if memory runs out, the kernel must kill this process and not the program */
    fd = open("/proc/self/oom_score_adj", O_WRONLY);
    if (fd >= 0) {
        (void)!write(fd, first_to_go, sizeof first_to_go - 1);
        close(fd);
    }
    setpriority(PRIO_PROCESS, 0, niceness);
    alarm(BARE_FORK_SECONDS);
    /* end with the thread that asked, so that the copy of its heap does not stay */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(1);
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
}

pid_t bare_fork(int niceness)
{
    sigset_t all, before;
    pid_t parent = getpid(), child;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    child = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
    if (child == 0)
        take_leave(parent, niceness);
    else
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    return child < 0 ? -errno : child;
}

int bare_fork_is_at_work(pid_t child, double seconds)
{
    struct timespec pause = { 0, 200000 };
    int64_t until = recorder_now() + (int64_t)(seconds * 1e9);

    for (;;) {
        siginfo_t found;
        found.si_pid = 0;
        if (waitid(P_PID, (id_t)child, &found, WEXITED | WNOHANG | WNOWAIT | __WCLONE) < 0 ||
            found.si_pid != 0)
            return 0;
        if (recorder_now() >= until || nanosleep(&pause, NULL) < 0)
            return 1;
        if (pause.tv_nsec < 10000000)
            pause.tv_nsec *= 2;
    }
}

int bare_fork_reap(pid_t child, int *status, int *is_late)
{
    pid_t found = waitpid(child, status, __WCLONE | WNOHANG);

    *is_late = found == 0;
    if (found == 0) {
        (void)kill(child, SIGKILL);
        do
            found = waitpid(child, status, __WCLONE);
        while (found < 0 && errno == EINTR);    /* a signal handler ran */
    }
    return found == child;
}
