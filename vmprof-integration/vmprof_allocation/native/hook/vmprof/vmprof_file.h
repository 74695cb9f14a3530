#pragma once
/* The variable in which vmprof stores the descriptor of its file.
 *
 * vmprof resets the variable in a forked child.  But vmprof's signal handler, which walks
 * stacks for us, needs a descriptor.
 */

#include <stdint.h>

/* Find the variable in the code of vmprof's 'handler', while vmprof is enabled on 'fd'.
   Returns 0, or ENOTSUP if the result is ambiguous. */
int vmprof_file_learn(uintptr_t handler, int fd);

/* Set vmprof's descriptor in a forked child.  Returns 0 or an errno. */
int vmprof_file_set(int fd);
/* Reset the descriptor that vmprof_file_set() has set, if any. */
void vmprof_file_take_back(void);
