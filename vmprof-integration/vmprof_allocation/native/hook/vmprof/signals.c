#define _GNU_SOURCE
#include "signals.h"

#include <errno.h>
#include <stddef.h>
#include <sys/time.h>
#include <ucontext.h>

#include "recorder.h"

/* vmprof's handler. */
static struct sigaction vmprof_action;
static volatile int takes_time_samples;
static void (*take_sample)(siginfo_t *info, void *context);

/* the program's settings, while they are replaced */
static struct sigaction program_action;
static struct itimerval program_timer;
static enum {
    OWN,            /* the settings are the program's */
    OURS,           /* CPU samples are taken: the settings are ours, unless the
                       program has changed the handler since */
    SAVED           /* vmprof may change the settings */
} state;

void signals_call_vmprof(siginfo_t *info, void *context)
{
    vmprof_action.sa_sigaction(SIGPROF, info, context);
}

void signals_call_vmprof_now(void)
{
    /* The handler only reads the program counter, and searches it in the JIT's code.
       NULL is not found there. */
    static siginfo_t info;
    static ucontext_t context;

    signals_call_vmprof(&info, &context);
}

/* Handle SIGPROF in place of vmprof's own handler.  vmprof's timer sends the signals. */
static void on_sigprof(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;

    (void)signal;
    if (takes_time_samples && recorder_begin_time_sample()) {
        take_sample(info, context);
        recorder_end_time_sample();
    }
    errno = saved_errno;
}

int signals_learn_vmprofs(void)
{
    if (sigaction(SIGPROF, NULL, &vmprof_action) < 0)
        return errno;
    return vmprof_action.sa_flags & SA_SIGINFO ? 0 : ENOTSUP;
}

uintptr_t signals_vmprofs_handler(void)
{
    return (uintptr_t)vmprof_action.sa_sigaction;
}

int signals_begin_time_samples(void (*take)(siginfo_t *, void *))
{
    struct sigaction action = vmprof_action;

    take_sample = take;
    takes_time_samples = 1;
    action.sa_sigaction = on_sigprof;
    if (sigaction(SIGPROF, &action, NULL) < 0)
        return errno;
    state = OURS;
    return 0;
}

void signals_end_time_samples(void)
{
    takes_time_samples = 0;
}

int signals_take_time_samples(void)
{
    return takes_time_samples;
}

void signals_save(void)
{
    struct sigaction action;

    if (state != SAVED && sigaction(SIGPROF, NULL, &action) == 0 &&
        !(state == OURS && action.sa_sigaction == on_sigprof))
        program_action = action;
    if (state == OWN)
        (void)getitimer(ITIMER_PROF, &program_timer);
    state = SAVED;
}

/* vmprof leaves the signal ignored, which programs that this one starts would inherit.
   Ignoring it has also discarded pending signals. */
void signals_restore(void)
{
    if (state != OWN) {
        (void)sigaction(SIGPROF, &program_action, NULL);
        (void)setitimer(ITIMER_PROF, &program_timer, NULL);
    }
    state = OWN;
}

void signals_forget(void)
{
    if (state != OWN)
        (void)sigaction(SIGPROF, &program_action, NULL);
    state = OWN;
    takes_time_samples = 0;
}
