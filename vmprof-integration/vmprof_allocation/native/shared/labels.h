#pragma once
/* Labels, with which the program describes the work of a thread, such as the URL of the
 * request that the thread answers.  Each sample gets the present set of labels of its
 * thread.  Call the functions with the GIL.
 */

#pragma GCC visibility push(hidden)

/* Forget the labels of all threads, and register this module as the recorder's source of
   labels. */
void labels_begin(void);

/* Define a set of labels, which is UTF-8 text: "key=value" with 0x1f between the pairs.
   Returns its number.  Returns 0 if there is no memory, or if there are
   PROFILE_LOG_LABELS sets. */
int labels_define(const char *text);

/* Give the calling thread this set of labels; 0 removes its labels. */
void labels_set(int number);

#pragma GCC visibility pop
