#pragma once
/* Keys and items in paths, as Python expressions that evaluate to the object wherever
   they are used. */

#include <stdint.h>

#include "text.h"

#pragma GCC visibility push(hidden)

/* Append an expression for a str, bytes, int, True, False, None, a class, or an
   attribute of the object's own class (such as a member of an enum), or for a tuple of
   such objects.  Returns 0 for any other object; the text may then have an incomplete
   expression. */
int literal_add(struct text *, uint64_t object);

/* Return the item of a tuple by its number from 0.  Returns 0 if 'tuple' is no tuple,
   has no such item, or stores the item as a plain number. */
uint64_t tuple_item(uint64_t tuple, uint64_t number);

#pragma GCC visibility pop
