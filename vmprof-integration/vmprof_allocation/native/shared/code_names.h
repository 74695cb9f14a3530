#pragma once
/* What vmprof writes once, when it is enabled or a function is made: the log's head, and
 * which function has which number.  The profiles of sampled children need it, too, and
 * those that follow in this process.
 *
 * A function that is made while vmprof is enabled is written then and never again: vmprof
 * forgets that it is there (rvmprof.py, register_code()).  So its name stays here for the
 * next profile, for as long as the process lives.
 *
 * Each profile has the names that its stacks need, and no others: vmprof writes those of
 * all functions that there are.  All this belongs to one thread at a time: call it with the recorder's
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

/* Keep what comes from now on. */
void code_names_begin(void);
/* vmprof has been enabled: what comes from now on, it will not tell again. */
void code_names_enabled(void);
/* Give the memory back, but for that of names that vmprof will not tell again; from now on
   nothing is kept. */
void code_names_end(void);

/* vmprof's records before any name */
void code_names_keep_head(const void *records, size_t size);
/* Keep the names in these whole records.  A name replaces an earlier one of the same function,
   and code_names_record() then returns it again. */
void code_names_keep(const char *records, size_t size);

/* The head of another profile, with the time that it is now.  It is written, and
   that profile begins: code_names_begin_next(). */
const void *code_names_head(size_t *size);
void code_names_begin_next(void);
/* Return vmprof's record with the name of the function of this number, which has '*size' bytes
   and is valid until the next call.  Returns NULL if the present profile has this name already,
   or if the name is unknown. */
const void *code_names_record(int64_t number, size_t *size);

/* vmprof's last record, with the time that it is now */
#define CODE_NAMES_TRAILER      25
void code_names_trailer(char trailer[CODE_NAMES_TRAILER]);

#pragma GCC visibility pop
