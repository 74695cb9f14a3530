#pragma once
/* What the GC calls its types, written into the profile when one is first met:
   in a profile of a program that is killed, those that it needs are there. */

#include <stddef.h>
#include <stdint.h>

/* 'text' as in rgc.get_typeids_z(), unpacked: a line for each type, in the order
   of their numbers.  It is copied; without memory for that there are no names. */
void type_names_set(const char *text, size_t size);

/* Another profile begins. */
void type_names_begin(void);

/* Between recorder_begin_facts() and its end: an object of the GC's type number
   'type' is going to be told of, as type + 1. */
void type_names_meet(int64_t type);
