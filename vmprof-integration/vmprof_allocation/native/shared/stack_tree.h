#pragma once
/* All stacks that were seen, as a tree, because many stacks share their outer frames.
 *
 * A stack is a sequence of words as vmprof writes them: pairs (kind, address), the
 * innermost frame first.  Each frame leads from a node to a child, beginning with the
 * outermost frame.  The node of the innermost frame identifies the stack.
 *
 * stack_tree_tell() writes a node and its frames to the profile when a sample needs them
 * for the first time.  In this module, a node or frame was *told* if the profile has it.
 * In the profile, nodes and frames have numbers from 1 on, in the order in which they were
 * written.  The numbers begin with 1 again in the next segment, while the tree and its
 * nodes stay.
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

/* The value instead of a node, or of its number in the profile, if the stack is unknown.
   Node 0 is the stack without frames. */
#define STACK_LOST          (-1)

/* A word in vmprof's records, which are not aligned */
typedef int64_t stack_word __attribute__((aligned(1), may_alias));

/* Start with an empty tree.  'tell_frame' writes a frame to the profile, and 'tell_node' a
   node; both are called in the order of the numbers in the profile. */
void stack_tree_begin(void (*tell_frame)(int64_t kind, int64_t address),
                      void (*tell_node)(int64_t parent, int64_t frame));
/* Unmap the tree. */
void stack_tree_end(void);

/* Start another segment, to which no node or frame was written. */
void stack_tree_begin_part(void);

/* Return the node of a stack, or STACK_LOST if there is no memory.  'count' is even, and
   at most STACK_MAX_WORDS. */
int64_t stack_tree_node(const stack_word *words, size_t count);

/* Write a node, all its parents and their frames to the profile, except for those that
   the profile has.  Returns the number of the node in the profile, or STACK_LOST if the
   tree was emptied since the node was made. */
int64_t stack_tree_tell(int64_t node);

/* Return whether the profile has a Python frame with this address. */
int stack_tree_has_told(int64_t address);

/* A key identifies a stack that was seen before, without its words.  The caller chooses
   the keys, and 0 is not allowed.  The caller may not notice that a key now belongs to
   another stack.  So a key is valid STACK_KEY_USES times, and the stack must then be
   walked again. */
#define STACK_KEY_USES      100

/* Let 'key' identify the stack of a node. */
void stack_tree_remember(uint64_t key, int64_t node);

/* Return how often all keys were forgotten, so that a caller with copies of keys can
   discard them. */
unsigned stack_tree_keys(void);
/* Forget all keys. */
void stack_tree_forget_keys(void);

/* Return the node of 'key', or STACK_LOST if the key is unknown or was used too often. */
int64_t stack_tree_known(uint64_t key);

#pragma GCC visibility pop
