#pragma once
/* The stacks of sampled objects that a profile ends with, and the next one begins with:
 * there they are under numbers of its own (PROFILE.rst, ``carried``).
 *
 * When the next profile has begun, with the recorder's lock, in this order; it costs
 * time in what is wanted of stacks (stack_table.h). */

#include <stdint.h>

#include "facts.h"

#pragma GCC visibility push(hidden)

/* 'most' is the largest number of all that are needed.  Without memory for them, all
   get lost. */
void carried_stacks_begin(int64_t most);
void carried_stacks_need(int64_t stack);
/* All those that are needed are written, with the names of their functions. */
void carried_stacks_define(void);
/* Which number it has now; 0: it got lost */
int64_t carried_stacks_number(int64_t stack);
/* An object that has it: facts.h */
void carried_stacks_tell(enum facts_carried kind, int64_t key, int which,
                         int64_t stack, int64_t size, int64_t live_size,
                         int64_t interval, int64_t type);
void carried_stacks_end(void);

#pragma GCC visibility pop
