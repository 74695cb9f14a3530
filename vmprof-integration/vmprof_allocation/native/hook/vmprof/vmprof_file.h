#pragma once
/* vmprof keeps the descriptor of its file in a word of its own.  It forgets it in a
 * forked child, and its signal handler, which walks stacks for us, must have one.
 */

#include <stdint.h>

/* Learn where that word is, from the code of vmprof's 'handler', while vmprof is
   enabled on 'fd'.  Returns 0, or ENOTSUP if it is not certain. */
int vmprof_file_learn(uintptr_t handler, int fd);

/* In a forked child: this is its file.  Returns 0 or an errno. */
int vmprof_file_set(int fd);
/* It has none any more; harmless if nothing was set. */
void vmprof_file_take_back(void);
