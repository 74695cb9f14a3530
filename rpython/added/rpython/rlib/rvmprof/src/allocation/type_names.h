#pragma once
/* What the GC calls its types, and an interpreter its classes, written into the
   profile when one is first met: in a profile of a program that is killed, those
   that it needs are there. */

#include <stddef.h>
#include <stdint.h>

/* 'text' as in rgc.get_typeids_z(), unpacked: a line for each type, in the order
   of their numbers.  It is copied; without memory for that there are no names. */
void type_names_set(const char *text, size_t size);

/* Another profile begins, with classes of its own, */
void type_names_begin(void);

/* or another part of it, in which all have the numbers that they had. */
void type_names_begin_next(void);

/* The following ones between recorder_begin_facts() and its end. */

/* The profile's number for objects of the GC's type number 'type', or, if
   'its_class' is not 0, of a class of the interpreter's, whose instances are of
   this type.  0 if 'type' is negative. */
int64_t type_names_number(int64_t type, int64_t its_class);

/* What the interpreter calls this class, in UTF-8 */
void type_names_class(int64_t its_class, const char *name, size_t size);
