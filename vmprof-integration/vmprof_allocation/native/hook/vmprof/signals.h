#pragma once
/* SIGPROF and its timer belong to the program, but for time samples.
 *
 * vmprof does with them what it likes when it is enabled and disabled: what
 * the program did is *saved* before, and *restored* afterwards.
 */

#include <signal.h>
#include <stdint.h>

/* What the program does with them, as far as it is not vmprof's or ours */
void signals_save(void);

/* Harmless if it was done before */
void signals_restore(void);

/* Learn vmprof's handler, which it has just set.  Returns 0 or an errno. */
int signals_learn_vmprofs(void);

uintptr_t signals_vmprofs_handler(void);

/* Have vmprof's handler take a sample: of what 'context' interrupts, ... */
void signals_call_vmprof(siginfo_t *info, void *context);
/* ... or of this thread, here and now */
void signals_call_vmprof_now(void);

/* From now on, vmprof's signals take time samples: 'take' has the recorder's lock.  Returns
   0 or an errno. */
int signals_begin_time_samples(void (*take)(siginfo_t *info, void *context));
/* No more; but the signals still come. */
void signals_end_time_samples(void);
int signals_take_time_samples(void);

/* In a forked child, where no timer goes on */
void signals_forget(void);
