#pragma once
/* What vmprof writes once, when it is enabled or a function is made, and what
 * the profiles of followed children need, too, and those that follow in this
 * process: the log's head, and which function has which number.
 *
 * Each writes the names that its stacks need, and those of new functions, and no
 * others.  All this belongs to one thread at a time: call it with the recorder's
 * lock.
 *
 * A child may be forked while another thread of its parent's is in here, and finds
 * these tables half written.  It doesn't use them: that thread wrote them for
 * vmprof, which has a lock of its own then, and that is still held in the child,
 * which tries it first.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Keep nothing so far, and from now on what comes. */
void code_names_begin(void);
/* Give the memory back; from now on nothing is kept. */
void code_names_end(void);

/* vmprof's records before any name */
void code_names_keep_head(const void *records, size_t size);
/* Whole records, names */
void code_names_keep(const char *records, size_t size);

/* The head of another profile, with the time that it is now.  It is written, and
   that profile begins: code_names_begin_next(). */
const void *code_names_head(size_t *size);
void code_names_begin_next(void);
/* Write the names of this stack's functions which this profile hasn't yet. */
void code_names_tell(const void *stack_sample, size_t size);
/* Likewise, of one whose words are these. */
void code_names_tell_stack(const int64_t *words, size_t count);

/* vmprof's last record, with the time that it is now */
#define CODE_NAMES_TRAILER      25
void code_names_trailer(char trailer[CODE_NAMES_TRAILER]);

#pragma GCC visibility pop
