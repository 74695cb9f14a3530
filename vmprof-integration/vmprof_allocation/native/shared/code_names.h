#pragma once
/* The records that vmprof writes only once, although later profiles of this process and the
 * profiles of sampled children need them.  They are the *head*, which consists of all
 * records before the first name of a function, and the name of each function.
 *
 * If a function is made while vmprof is enabled, vmprof writes its name at that time and
 * never again (rvmprof.py, register_code()).  So this module keeps such names until the
 * process ends.
 *
 * vmprof writes the names of all functions, but each profile gets only the names that its
 * stacks need.  The tables have no lock; call the functions with the recorder's lock.
 *
 * A child may be forked while another thread of its parent writes these tables.  The child
 * does not use the half-written tables: that thread wrote them on behalf of vmprof and held
 * vmprof's lock.  In the child, this lock stays held, and the child tries to take it first.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Start to keep records. */
void code_names_begin(void);
/* Note that vmprof has been enabled.  It will not write the names of later functions
   again. */
void code_names_enabled(void);
/* Stop keeping records, and free the memory except for the names that vmprof will not
   write again. */
void code_names_end(void);

/* Append a part of vmprof's head to the kept head. */
void code_names_keep_head(const void *records, size_t size);
/* Keep the names in these whole records.  A name replaces an earlier name of the same
   function.  Then code_names_record() returns the new name, even if the profile has the
   earlier one. */
void code_names_keep(const char *records, size_t size);

/* Return the file header of vmprof's format for another profile, with the present time.
   The caller writes it, and then calls code_names_begin_next(). */
const void *code_names_head(size_t *size);
/* Start a profile that does not have any names yet. */
void code_names_begin_next(void);
/* Return vmprof's record with the name of a function by its number.  The record has
   '*size' bytes, and is valid until the next call.  Returns NULL if the present profile
   has the name already, or if the name is unknown. */
const void *code_names_record(int64_t number, size_t *size);

/* Store vmprof's last record, which contains the present time. */
#define CODE_NAMES_TRAILER      25
void code_names_trailer(char trailer[CODE_NAMES_TRAILER]);

#pragma GCC visibility pop
