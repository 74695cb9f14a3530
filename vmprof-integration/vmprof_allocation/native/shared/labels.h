#pragma once
/* What the program says of the work that a thread does, such as which route of a
 * server it answers: sets of labels, which are recorded with its samples.  With the GIL.
 */

#pragma GCC visibility push(hidden)

/* No thread has any yet; the recorder asks here from now on. */
void labels_begin(void);

/* The number of a set, in UTF-8: "key=value" with 0x1f between them; 0: there is no room
   for more, of which PROFILE_LOG_LABELS is the limit. */
int labels_define(const char *text);

/* The calling thread has this set from now on; 0: none. */
void labels_set(int number);

#pragma GCC visibility pop
