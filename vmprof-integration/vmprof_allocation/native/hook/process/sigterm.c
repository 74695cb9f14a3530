#define _GNU_SOURCE
#include "sigterm.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "recorder.h"

static void end(void)
{
    (void)kill(getpid(), SIGTERM);      /* SA_RESETHAND has set the default action */
}

static void on_sigterm(int signal)
{
    int saved_errno = errno;

    (void)signal;
    recorder_flush_and(end);
    errno = saved_errno;
}

static int is_set_to(void (*handler)(int))
{
    struct sigaction action;

    return sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == handler;
}

static void set(void (*handler)(int), int flags)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
}

void sigterm_watch(void)
{
    if (is_set_to(SIG_DFL))
        set(on_sigterm, SA_RESETHAND | SA_RESTART);
}

int sigterm_is_watched(void)
{
    return is_set_to(on_sigterm);
}

void sigterm_unwatch(void)
{
    if (sigterm_is_watched())
        set(SIG_DFL, 0);
}
