#pragma once
/* A count of the other programs that forked children of the sampled process execute.
 *
 * These programs are not sampled, but the profile names them.  All processes of a run
 * share the memory with the counts.
 */

/* Begin to count, also in forked children. */
void programs_begin(void);
/* Stop counting, and give the memory back. */
void programs_end(void);

/* Add 'by' to the count of the program 'path'.  A child calls it with 1 before it
   executes 'path', and with -1 if the execution failed. */
void programs_count(const char *path, int by);

/* Write the programs into the profile of the first process, if there were further
   executions since the last call.  Does nothing in other processes. */
void programs_note(void);

/* Continue in the next segment, which gets all programs again. */
void programs_begin_next(void);
