#pragma once
/* All stacks that were seen, as a tree, because many stacks share their outer frames.
 *
 * A stack is a sequence of words as vmprof writes them: pairs (kind, address), the
 * innermost frame first.  Each frame leads from a node to a child, beginning with the
 * outermost frame.  The node of the innermost frame identifies the stack.
 *
 * stack_tree_tell() writes a node and its frames to the profile when they are needed for
 * the first time.  There, nodes and frames have numbers from 1 on, in this order.  The
 * numbers begin with 1 again in the next segment, while the tree and its nodes stay.
 *
 * The tree has at most STACK_TREE_NODES nodes.  When it is full, it is emptied: the old
 * nodes can no longer be written to the profile.
 *
 * A hash of 64 bits decides whether a stack was seen.  The probability that two of n stacks
 * have the same hash is n * n / 2**65, which is 2e-9 for 2**18 stacks.
 *
 * Call the functions with the recorder's lock.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define STACK_MAX_WORDS     2048        /* vmprof's stacks have at most 1019 words */
#define STACK_TREE_NODES    ((size_t)1 << 20)

/* Replaces a node or its number if the stack could not be taken.  Node 0 is the stack
   without frames. */
#define STACK_LOST          (-1)

/* A word in vmprof's records, which are not aligned */
typedef int64_t stack_word __attribute__((aligned(1), may_alias));

/* Start with an empty tree.  The two functions write a frame and a node to the profile;
   they are called in the order of the numbers. */
void stack_tree_begin(void (*tell_frame)(int64_t kind, int64_t address),
                      void (*tell_node)(int64_t parent, int64_t frame));
/* Unmap the tree. */
void stack_tree_end(void);

/* Start another segment, to which no node or frame was written. */
void stack_tree_begin_part(void);

/* Return the node of a stack, or STACK_LOST if there is no memory.  'count' is even, and
   at most STACK_MAX_WORDS. */
int64_t stack_tree_node(const stack_word *words, size_t count);

/* Write a node to the profile, after its parents and their frames, as far as this was
   not done before.  Returns its number in the profile, or STACK_LOST if the tree was
   emptied since. */
int64_t stack_tree_tell(int64_t node);

/* Return whether this profile has a Python frame of this address. */
int stack_tree_has_told(int64_t address);

/* A key of the caller's can identify a stack that was seen before, without its words.
   'key' is not 0.  The caller may not notice that a key belongs to another stack
   meanwhile.  So a key is valid STACK_KEY_USES times, and the stack must then be walked
   again. */
#define STACK_KEY_USES      100

/* Let 'key' identify the stack of this node. */
void stack_tree_remember(uint64_t key, int64_t node);

/* Return how often the keys were forgotten, so that the caller can discard its own
   copies. */
unsigned stack_tree_keys(void);
/* Forget all keys. */
void stack_tree_forget_keys(void);

/* Return the node of 'key', or STACK_LOST if the key is unknown or was used too often. */
int64_t stack_tree_known(uint64_t key);

#pragma GCC visibility pop
