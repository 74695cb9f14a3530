#pragma once
/* How many forked children are not sampled, for the profile to say.
 *
 * Each counts itself in memory that it shares with the process that is sampled, as soon
 * as it allocates: one that becomes another program at once is none of them.
 */

#pragma GCC visibility push(hidden)

/* Children of this process count from now on; it is none of them itself. */
void children_begin(void);
void children_end(void);

/* In a forked child */
void children_forked(void);

/* In a forked child that is not sampled, and that allocates.  Once is enough. */
void children_count(void);

/* There, if it is sampled after all, behind children_begin(): its parent counts it no
   more. */
void children_followed(void);

/* Their number, if it changed since the last call; or -1 */
int children_news(void);

/* A profile has begun that knows no number yet. */
void children_tell_again(void);

#pragma GCC visibility pop
