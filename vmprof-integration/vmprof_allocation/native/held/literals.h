#pragma once
/* Python expressions for the keys and items in reference paths.  The expression evaluates
   to the key or item wherever the modules in the expression are imported. */

#include <stdint.h>

#include "text.h"

#pragma GCC visibility push(hidden)

/* Append an expression for a str, bytes, int, True, False, None, a class, or an object
   that is an attribute of its class (such as a member of an enum), or for a tuple of
   such objects.  Returns 0 for any other object; the text may then have an incomplete
   expression. */
int literal_add(struct text *, uint64_t object);

/* Return the item of a tuple by its number from 0.  Returns 0 if 'tuple' is no tuple,
   has no such item, or stores the item as a plain number. */
uint64_t tuple_item(uint64_t tuple, uint64_t number);

#pragma GCC visibility pop
