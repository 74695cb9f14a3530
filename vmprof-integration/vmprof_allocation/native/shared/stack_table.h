#pragma once
/* The stacks that were seen, each of them once.
 *
 * A program has far fewer stacks than samples.  A stack is a sequence of
 * words as vmprof writes them, pairs (kind, address), the innermost frame
 * first.  Stacks are numbered from 1 on, and *defined* by what distinguishes
 * them from the one that was defined before: the number of frames that both
 * share at their outer ends, and the others.
 *
 * The table takes bounded memory.  When it is full it is emptied; a stack
 * that comes again after that is defined again, with a new number.
 *
 * Equality is decided by a hash of 64 bits.  That two different stacks among
 * n have the same has a probability of n * n / 2**65: 2e-12 in a full table.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define STACK_MAX_WORDS     2048        /* vmprof's stacks: 1019 at most */

/* as they stand in vmprof's records: anywhere */
typedef int64_t stack_word __attribute__((aligned(1), may_alias));

struct stack_words {
    int64_t word[STACK_MAX_WORDS];
    size_t count;
};

/* Forget everything. */
void stack_table_clear(void);

/* Begin with the numbers at 1 again, too. */
void stack_table_reset(void);

/* True if the next stack may find no room: empty it before. */
int stack_table_is_full(void);

/* The number of this stack, which is counted.  'count' is even, and at most
   STACK_MAX_WORDS.  If it is new, '*definition' and '*size' are its text
   (PROFILE.rst), otherwise NULL and 0. */
uint64_t stack_table_count(const stack_word *words, size_t count,
                           const char **definition, size_t *size);

/* A stack that comes again can be known by a key of the caller's, without its
   words.  'key' is not 0.  The caller may not notice when it comes to stand
   for another stack: it is believed STACK_KEY_USES times, and then has to be
   said again. */
#define STACK_KEY_USES      100

void stack_table_remember(uint64_t key, uint64_t number);
void stack_table_forget_keys(void);

/* The number of the stack that 'key' stands for, which is counted; or 0. */
uint64_t stack_table_count_known(uint64_t key);

/* Go through the table in the order of the definitions; '*at' is 0 at first.
   Changes 'stack' from one stack to the next, and fills in how often this one
   was counted, and how many words at the end are the last one's.  Returns 0
   when there are no more. */
int stack_table_next(size_t *at, struct stack_words *stack, uint64_t *counted,
                     size_t *shared);

#pragma GCC visibility pop
