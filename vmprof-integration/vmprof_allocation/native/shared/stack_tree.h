#pragma once
/* The stacks that were seen: a tree, as what most share is their outer frames.
 *
 * A stack is a sequence of words as vmprof writes them, pairs (kind, address), the
 * innermost frame first.  From the outermost frame on, they lead from node to node, and
 * a stack *is* the node that it ends with.
 *
 * A profile is told which nodes there are, and their frames, when they are needed for the
 * first time (stack_tree_tell()).  There they have numbers from 1 on, in this order; a
 * later part of the profile begins with 1 again, while the tree, and its nodes, stay.
 *
 * The tree takes bounded memory: STACK_TREE_NODES.  When it is full, it is emptied; of
 * the old nodes nothing can be told any more.
 *
 * Whether a stack was seen is decided by a hash of 64 bits.  That two different ones
 * among n have the same has a probability of n * n / 2**65: 2e-9 for 2**18.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define STACK_MAX_WORDS     2048        /* vmprof's stacks: 1019 at most */
#define STACK_TREE_NODES    ((size_t)1 << 20)

/* In place of a node, or of its number: the stack got lost.  0 is the stack without
   frames. */
#define STACK_LOST          (-1)

/* as they stand in vmprof's records: anywhere */
typedef int64_t stack_word __attribute__((aligned(1), may_alias));

/* Forget everything.  What is to be told goes to these, in the order of the numbers. */
void stack_tree_begin(void (*tell_frame)(int64_t kind, int64_t address),
                      void (*tell_node)(int64_t parent, int64_t frame));
/* Give the memory back. */
void stack_tree_end(void);

/* Another profile begins, which was told nothing. */
void stack_tree_begin_part(void);

/* The node of this stack; STACK_LOST: there is no memory.  'count' is even, and at most
   STACK_MAX_WORDS. */
int64_t stack_tree_node(const stack_word *words, size_t count);

/* Say what the node is, its parents first, and their frames, unless this was done.
   Returns its number in the profile, or STACK_LOST if nobody knows any more. */
int64_t stack_tree_tell(int64_t node);

/* Whether this profile was told of a Python frame of this address */
int stack_tree_has_told(int64_t address);

/* A stack that comes again can be known by a key of the caller's, without its
   words.  'key' is not 0.  The caller may not notice when it comes to stand
   for another stack: it is believed STACK_KEY_USES times, and then has to be
   said again. */
#define STACK_KEY_USES      100

void stack_tree_remember(uint64_t key, int64_t node);

/* How often the keys were forgotten */
unsigned stack_tree_keys(void);
void stack_tree_forget_keys(void);

/* The node that 'key' stands for, or STACK_LOST */
int64_t stack_tree_known(uint64_t key);

#pragma GCC visibility pop
