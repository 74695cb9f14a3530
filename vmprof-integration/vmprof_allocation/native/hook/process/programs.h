#pragma once
/* Other programs that forked children of the sampled process become: they are not
 * sampled, and the profile names them.  All processes of a run count together, in
 * memory that they share.
 */

/* Count from now on, for forked children, too. */
void programs_begin(void);
void programs_end(void);

/* This process, a child, is about to become the program 'path'; or, after all, it
   can't. */
void programs_count(const char *path, int by);

/* Write into the first process's profile which there were, if there were new
   ones. */
void programs_note(void);

/* It goes on in another profile, which is to have all of them. */
void programs_begin_next(void);
