#pragma once
/* The GC's names of types, and an interpreter's names of classes.
 *
 * A name is written to the profile when an object of the type or class is first reported.
 * So the profile has all names that it needs, even if the program is killed. */

#include <stddef.h>
#include <stdint.h>

/* Set the names of the GC's types.  'text' is the decompressed rgc.get_typeids_z(): one
   line per type, in the order of their numbers.  The text is copied.  Without memory for
   the copy, the types have no names. */
void type_names_set(const char *text, size_t size);

/* Start a profile, and forget all classes. */
void type_names_begin(void);

/* Start another segment, to which no name was written.  Types and classes keep their
   numbers. */
void type_names_begin_next(void);

/* Call the following functions only between recorder_begin_facts() and
   recorder_end_facts(). */

/* Return the profile's number of the GC's type 'type' or, if 'its_class' is not 0, the
   number of this class of the interpreter; then 'type' is the type of its instances.
   Returns 0 if 'type' is negative. */
int64_t type_names_number(int64_t type, int64_t its_class);

/* Set the interpreter's name of a class, in UTF-8. */
void type_names_class(int64_t its_class, const char *name, size_t size);
