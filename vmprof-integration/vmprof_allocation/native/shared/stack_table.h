#pragma once
/* The stacks that were seen, each of them once.
 *
 * A program has far fewer stacks than samples, and far fewer frames than its
 * stacks have together: they are a tree.  A stack is a sequence of words as
 * vmprof writes them, pairs (kind, address), the innermost frame first.  Its
 * frames from the outermost one on lead from node to node; frames, nodes and
 * stacks are numbered from 1 on, in the order in which they appear.  A stack
 * is *defined* by the node that it goes on from, and the frames that are new
 * there: a recursion that goes up and down takes no more than its depth.
 *
 * The table takes bounded memory.  When it is full it is emptied; a stack
 * that comes again after that is defined again, with new numbers.
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

/* A walk through the table, all zeros at first; and where it is: the stack's
   words are the last 'count' ones. */
struct stack_walk {
    int64_t word[STACK_MAX_WORDS];
    size_t count;
    uint16_t node;
    char begun;
};

/* Forget everything, but what is wanted. */
void stack_table_clear(void);

/* Begin with the numbers at 1 again, too. */
void stack_table_reset(void);

/* The stack with this number, which is not 0, is needed as long as the numbers
   go on: its words are kept when the table is emptied.  All that is kept takes
   bounded memory, and what comes when there is no more is lost. */
#define STACK_MAX_KEPT      ((size_t)1 << 19)       /* words */
void stack_table_want(uint64_t number);

/* As stack_table_reset(), but what was wanted stays, until stack_table_drop(). */
void stack_table_turn(void);
/* Go on to one of these, with the number that it had; all zeros at first.  Its
   words are the last 'count' ones.  Returns 0 when there are no more. */
struct stack_kept {
    int64_t word[STACK_MAX_WORDS];
    size_t count;
    uint64_t number;
    size_t at;
};
int stack_table_next_kept(struct stack_kept *);
void stack_table_drop(void);

/* True if the next stack may find no room: empty it before. */
int stack_table_is_full(void);

/* The number of this stack, which is counted.  'count' is even, and at most
   STACK_MAX_WORDS.  If it is new, '*definition' and '*size' are its text
   (PROFILE.rst), otherwise NULL and 0. */
uint64_t stack_table_count(const stack_word *words, size_t count,
                           const char **definition, size_t *size);

/* Likewise, without counting it; and it is wanted. */
uint64_t stack_table_define(const stack_word *words, size_t count,
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

/* Go on to a stack that shares as many frames as possible with the last one:
   '*shared' says how many words at the end.  Fills in how often it was
   counted.  Returns 0 when there are no more. */
int stack_table_next(struct stack_walk *walk, uint64_t *counted,
                     size_t *shared);

#pragma GCC visibility pop
