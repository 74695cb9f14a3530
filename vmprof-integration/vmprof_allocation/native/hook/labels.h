#pragma once
/* What the program says of the work that a thread does, such as which route of a
 * server it answers: sets of labels, which are recorded with its samples. */

/* No thread has any yet; the recorder asks here from now on. */
void labels_begin(void);
