#pragma once
/* An object that an expression gives, wherever it is evaluated. */

#include <stdint.h>

#include "text.h"

#pragma GCC visibility push(hidden)

/* Text, bytes, a whole number, True, False or None; a class; what a class has by a name,
   as an enum its members; a tuple of these.  Returns 0 if it is something else. */
int literal_add(struct text *, uint64_t object);

/* The item of a tuple with this number; 0: there is none, or it is no object */
uint64_t tuple_item(uint64_t tuple, uint64_t number);

#pragma GCC visibility pop
