#pragma once
/* The number of forked children that are not sampled, which the profile contains.
 *
 * Each child counts itself in memory that it shares with the sampled process.  It does so
 * at its first allocation, so a child that calls exec at once does not count.
 */

#pragma GCC visibility push(hidden)

/* Start to count the children of this process. */
void children_begin(void);
/* Stop counting, and unmap the shared memory. */
void children_end(void);

/* Note that this process is a new forked child, which has not counted itself yet. */
void children_forked(void);

/* Count this child.  Called in a forked child that is not sampled, at an allocation;
   only the first call has an effect. */
void children_count(void);

/* Undo children_count() in a child that is sampled after all.  Call it after
   children_begin(). */
void children_followed(void);

/* Return the number of children if it has changed since the last call, and -1 otherwise. */
int children_news(void);

/* Make the next children_news() return the number even if it has not changed, for a new
   profile. */
void children_tell_again(void);

#pragma GCC visibility pop
