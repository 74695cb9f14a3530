#define _GNU_SOURCE
#include "process_end.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "child_settings.h"
#include "end_notes.h"
#include "flusher.h"
#include "gc/objects.h"
#include "hook.h"
#include "programs.h"
#include "run.h"
#include "sigterm.h"
#include "snapshots/held_by.h"
#include "vmprof/signals.h"

#define MOST_VARIABLES  4000    /* environment variables; with more, a program is not
                                   sampled */

/* Give types to the sampled objects in the nursery, and divide batched allocations into
 * objects.
 *
 * The functions that end a process run outside of a safepoint, and may have released the
 * GIL.  If no other thread can take the GIL, nothing changes the nursery, and its headers
 * are valid.  If the process continues nevertheless, the outcomes of these objects stay
 * unknown.
 */
static void find_young_objects(void)
{
    if (run_process() == getpid() && flusher_is_only_other_thread())
        objects_tell_waiting();
}

void process_end_exit(int code)
{
    held_by_process_ends(1);
    find_young_objects();
    if (child_is_this())
        (void)run_end();        /* children of multiprocessing end like this */
    else
        end_notes_why("the program called os._exit()");
    _exit(code);
}

void process_end_abort(void)
{
    held_by_process_ends(1);
    end_notes_why("the process aborted");
    abort();
}

static int ends_the_process(int signal)
{
    sigset_t blocked;

    switch (signal) {
    case SIGCHLD: case SIGCONT: case SIGSTOP: case SIGTSTP: case SIGTTIN: case SIGTTOU:
    case SIGURG: case SIGWINCH:
        return 0;
    default:
        return pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 &&
               !sigismember(&blocked, signal);
    }
}

/* Record that this process sends 'signal' to itself, if the signal has its default action.
   Returns whether it has. */
static int note_signal(int signal)
{
    struct sigaction action;

    if ((sigaction(signal, NULL, &action) < 0 || action.sa_handler != SIG_DFL) &&
        !(signal == SIGTERM && sigterm_is_watched()))
        return 0;
    if (ends_the_process(signal))
        find_young_objects();
    end_notes_why("the process sent itself a signal");
    return 1;
}

/* Return whether kill(pid, signal) sends the signal to this process.  'pid' may also mean a
   process group, or all processes. */
static int is_this_process(pid_t pid)
{
    return pid == getpid() || pid == 0 || pid == -1 || pid == -getpgrp();
}

int process_end_kill(pid_t pid, int signal)
{
    int may_end = is_this_process(pid) && note_signal(signal);
    int result = kill(pid, signal);

    if (result == 0 && pid != getpid())
        end_notes_remember(pid, signal);
    if (may_end)
        end_notes_why("");   /* the process continues */
    return result;
}

int process_end_raise(int signal)
{
    int may_end = note_signal(signal);
    int result = raise(signal);

    if (may_end)
        end_notes_why("");
    return result;
}

/* Prepare for an exec.  vmprof's timer would survive it, and its signal would kill the
   new program. */
static void before_exec(const char *path, struct itimerval *timer)
{
    static const struct itimerval off;

    held_by_process_ends(1);
    if (access(path, X_OK) == 0)        /* os.execvp() tries all folders of PATH */
        find_young_objects();
    end_notes_why("the process became another program");
    memset(timer, 0, sizeof *timer);
    if (signals_take_time_samples())
        (void)setitimer(ITIMER_PROF, &off, timer);
}

static int failed_exec(int result, const struct itimerval *timer)
{
    int saved_errno = errno;

    if (signals_take_time_samples())
        (void)setitimer(ITIMER_PROF, timer, NULL);
    held_by_process_ends(0);
    end_notes_why("");
    errno = saved_errno;
    return result;
}

static int execve_with(const char *path, char *const arguments[],
                       char *const environment[], size_t count, char *variable)
{
    /* on the stack, because another thread may have held malloc()'s lock at the fork */
    char *with_ours[count + 2];

    if (count > 0)
        memcpy(with_ours, environment, count * sizeof *with_ours);
    with_ours[count] = variable;
    with_ours[count + 1] = NULL;
    return execve(path, arguments, with_ours);
}

int process_end_execv(const char *path, char *const arguments[])
{
    return process_end_execve(path, arguments, environ);
}

int process_end_execve(const char *path, char *const arguments[],
                       char *const environment[])
{
    size_t count = 0;
    char *variable = NULL;
    int is_other, result;
    struct itimerval timer;

    while (environment != NULL && environment[count] != NULL)
        count++;
    if (count <= MOST_VARIABLES)
        variable = child_variable(path, arguments);
    is_other = variable == NULL && child_is_this();
    if (is_other)
        programs_count(path, 1);
    before_exec(path, &timer);
    result = failed_exec(variable == NULL
                             ? execve(path, arguments, environment)
                             : execve_with(path, arguments, environment, count, variable),
                         &timer);
    if (is_other)
        programs_count(path, -1);
    return result;
}
