#pragma once
/* Which type an object is of, in words of a Python programmer.
 *
 * Every function here runs with the GIL held, inside one of the GC's own
 * functions, while what the nursery holds is whole: before a minor collection
 * begins.  Nothing is allocated from the GC, and nothing waits.
 *
 * An object begins with its header, whose lower half says of which of the GC's
 * types it is.  What that is called, probe/ has written into a text.  All
 * instances of Python's classes share a few of these types: from such an
 * object, the way leads over its map to its class, and from there to the
 * class's name.  It is followed without trust: what the JIT has reserved, but
 * not filled, may look like an object.
 */

#include <stddef.h>
#include <stdint.h>

#include "hook.h"

/* The text (probe/names.py), which is to stay where it is.  NULL: types are
   not known.  Once per process. */
void types_prepare(const struct hook_place *place, const char *text,
                   size_t size);

/* Whether types are known: otherwise the functions below return NULL or 0. */
int types_are_known(void);

/* A profile begins: nothing has been named in it.  Any thread, before the
   first sample. */
void types_begin(void);

/* The type of what begins at 'object'; NULL: it is not known, or no object.  Of what has no
   type, number and size are 0. */
struct type;
struct type *types_of(uintptr_t object);

/* The number in the profile's 'types' of an object of this type.  Names that are new go
   to recorder_type().  With the recorder's lock. */
int64_t types_number(struct type *, uintptr_t object);

/* Bytes that it takes when it is old; 0: what stands there is no header of an object that
   may be young, or no length. */
int64_t types_old_size(const struct type *, uintptr_t object);

/* Bytes that the GC reserves for what takes 'old_size': in the nursery there is room for
   the address that a minor collection leaves, and an object() has nothing but a header. */
#define TYPES_SMALLEST  16
static inline int64_t types_young_size(int64_t old_size)
{
    return 0 < old_size && old_size < TYPES_SMALLEST ? TYPES_SMALLEST : old_size;
}

/* Whether it may have been an array of more items, of characters: the GC shrinks
   what a string is built in. */
int types_may_shrink(const struct type *);

/* If what stands at 'object', which may be anything, is the code of a Python function:
   vmprof's number of it; otherwise, and where that is not known, 0. */
int64_t types_function(uintptr_t object);

/* Whose an object with this first word is by its type: the JIT's own, one of the
   interpreter's or of Python's, what writes a trace to the JIT's log, or anything, such as
   an array. */
enum types_whose { TYPES_ANYBODYS, TYPES_JITS, TYPES_PYTHONS, TYPES_LOGS };
enum types_whose types_whose(uint64_t header);

/* The GC has marked what is alive, and is about to free the rest. */
void types_major_collection(void);
