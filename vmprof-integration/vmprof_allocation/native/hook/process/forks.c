/* The fork handlers of the hook engine (hook_watch_forks()).  Before a fork, they bring the
 * recorder, native memory and vmprof's timer into a state that can be copied.  In a child,
 * they start the child's own sampling, or end the parent's.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/time.h>

#include "hook.h"
#include "lines/jit_log.h"
#include "malloc/raw_memory.h"
#include "patches/divert.h"
#include "recorder.h"
#include "run.h"
#include "sampled_child.h"
#include "start_stop.h"
#include "vmprof/signals.h"
#include "vmprof/vmprof_output.h"

/* The program's timer at the fork of this thread. */
static __thread __attribute__((tls_model("initial-exec")))
struct itimerval timer_at_fork;

/* Whether this thread has taken the recorder's lock for the fork. */
static __thread __attribute__((tls_model("initial-exec"))) int is_locked;

static int is_program_timer(void)
{
    return vmprof_output_is_enabled() && !signals_take_time_samples();
}

static void before_fork(void)
{
    if (is_program_timer())
        (void)getitimer(ITIMER_PROF, &timer_at_fork);
    raw_memory_before_fork();
    /* While this thread has the lock, no other thread is in vmprof's handler, for which a
       child would wait forever.  No other thread leaves the recorder's tables half
       changed, either. */
    if (!recorder_has_lock()) {
        recorder_lock();
        is_locked = 1;
    }
    child_before_fork();
}

/* Undo before_fork().  The program's timer must be restored, because vmprof stops the timer
   of the process at a fork, and then starts its own timer. */
static void after_fork_in_parent(void)
{
    if (is_locked)
        recorder_unlock();
    is_locked = 0;
    raw_memory_after_fork();
    if (is_program_timer())
        (void)setitimer(ITIMER_PROF, &timer_at_fork, NULL);
}

/* Let the native half notice that this process is a child, which may never run Python.
   The Python half compares PIDs when it is called (session.py). */
static void after_fork_in_child(void)
{
    int is_sampled = child_is_wanted();

    is_locked = 0;              /* recorder_forget() unlocks the recorder */
    divert_forked();
    run_forked();
    if (recorder_forget()) {
        vmprof_output_forget();
        signals_forget();
    }
    is_sampled = is_sampled && child_begin() == 0;
    raw_memory_forked(is_sampled);
    if (!is_sampled) {
        jit_log_end();          /* only Python can stop PyPy's writing of the log */
        start_stop_forked();
    }
}

int hook_watch_forks(void)
{
    static int is_watching;
    int error;

    if (is_watching)
        return 0;
    /* vmprof has registered its handlers by now.  Handlers before a fork run in reverse
       order, so ours run first. */
    error = pthread_atfork(before_fork, after_fork_in_parent,
                           after_fork_in_child);
    is_watching = (error == 0);
    return error;
}
