#pragma once
/* SIGPROF and its timer, which belong to the program except while CPU samples are taken.
 *
 * vmprof changes both when it is enabled and disabled.  Therefore, the program's settings
 * are *saved* before, and *restored* afterwards.
 */

#include <signal.h>
#include <stdint.h>

/* Save the program's handler and timer, unless they are vmprof's or ours. */
void signals_save(void);

/* Restore the handler and the timer that signals_save() has saved.  May be called again. */
void signals_restore(void);

/* Store vmprof's handler, which vmprof has just set for SIGPROF.  Returns 0 or an errno. */
int signals_learn_vmprofs(void);

/* Return the address of vmprof's handler. */
uintptr_t signals_vmprofs_handler(void);

/* Make vmprof's handler take a sample of the code that 'context' interrupts. */
void signals_call_vmprof(siginfo_t *info, void *context);
/* Make vmprof's handler take a sample of this thread, here and now. */
void signals_call_vmprof_now(void);

/* Take a CPU sample at each signal of vmprof's timer from now on.  'take' is called with
   the recorder's lock.  Returns 0 or an errno. */
int signals_begin_time_samples(void (*take)(siginfo_t *info, void *context));
/* Take no more CPU samples, although the signals continue. */
void signals_end_time_samples(void);
/* Return whether CPU samples are taken. */
int signals_take_time_samples(void);

/* Restore the program's handler in a forked child, which inherits no timer. */
void signals_forget(void);
