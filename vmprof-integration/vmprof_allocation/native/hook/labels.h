#pragma once
/* What the program says of the work that a thread does, such as which route of a
 * server it answers: sets of labels, which are recorded with its samples. */

/* Of the set with this number, "key=value" with 0x1f between them; NULL: there is
   none */
const char *labels_text(int number);
