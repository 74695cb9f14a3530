#pragma once
/* The type of an object, with the name that a Python programmer uses.
 *
 * Every function here runs with the GIL, inside of a function of the GC, before a minor
 * collection begins.  The objects in the nursery are complete at this time.  The
 * functions neither allocate from the GC nor wait.
 *
 * The lower half of an object's header is the number of its GC type.  A text that
 * probe/names.py wrote contains the name of each GC type.  All instances of Python
 * classes share a few GC types.  For such an instance, these functions follow the
 * object's map to its class, and read the name of the class.  They check each pointer,
 * because bytes that the JIT has reserved but not filled may look like an object.
 */

#include <stddef.h>
#include <stdint.h>

#include "hook.h"

/* Read 'text', which probe/names.py has written, and which must stay in memory.  With
   NULL, types are unknown.  Call it once per process. */
void types_prepare(const struct hook_place *place, const char *text,
                   size_t size);

/* Return whether types are known.  Otherwise, the functions below return NULL or 0. */
int types_are_known(void);

/* Begin a profile, in which no type has a name yet.  Call it before the first sample, in
   any thread. */
void types_begin(void);

/* Return the type of the object at 'object', or NULL if the type is unknown or there is
   no object.  types_number() and types_old_size() return 0 for a NULL type. */
struct type;
struct type *types_of(uintptr_t object);

/* Return the number of the object's type in the profile ('types' in PROFILE.rst).  If the
   type is new in the profile, its name is written with recorder_type().  The caller has
   the recorder's lock. */
int64_t types_number(struct type *, uintptr_t object);

/* Return the size in bytes that the object has when it is old.  Returns 0 if the header
   cannot belong to a young object, or if the length is invalid. */
int64_t types_old_size(const struct type *, uintptr_t object);

/* Return the bytes that the GC reserves in the nursery for an object that takes
   'old_size' bytes when it is old.  A minor collection needs room for a forwarding
   address, but an object() has only a header. */
#define TYPES_SMALLEST  16
static inline int64_t types_young_size(int64_t old_size)
{
    return 0 < old_size && old_size < TYPES_SMALLEST ? TYPES_SMALLEST : old_size;
}

/* Return whether an object of this type may have been allocated with more items than it
   has.  The GC shrinks the arrays of characters in which strings are built. */
int types_may_shrink(const struct type *);

/* Return vmprof's number of the Python function whose code object is at 'object'.
   Returns 0 if there is no code object, or if code objects are unknown.  'object' may be
   any address. */
int64_t types_function(uintptr_t object);

/* The owner of an object, by the GC type in its header.  It is the JIT, the interpreter
   or Python code, the writer of a trace in the JIT's log, or unknown.  An array, for
   example, may have any owner. */
enum types_whose { TYPES_ANYBODYS, TYPES_JITS, TYPES_PYTHONS, TYPES_LOGS };
/* Return the owner of an object whose first word, the GC's header, is 'header'. */
enum types_whose types_whose(uint64_t header);

/* Forget the cached addresses of classes.  Call it when the GC has marked the live objects,
   and before it frees the others. */
void types_major_collection(void);
