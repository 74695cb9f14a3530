#pragma once
/* Classes of Python: the class of an instance, its bases, its attributes and its name. */

#include <stdint.h>

#include "gc_types.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* Return the class of an object whose type has a map, or 0 if the map is not known yet. */
uint64_t class_of(uint64_t instance, const struct gc_type *type);

/* Return an item of the method resolution order by its number; number 0 is the class
   itself.  Returns 0 after the last item, or if the order is unknown. */
uint64_t class_in_mro(uint64_t its_class, uint64_t number);

/* Return whether the full name of a class is 'name', such as "module.Outer.Name". */
int class_is(uint64_t its_class, const char *name);

/* Return the value of an attribute of an instance, or 0.  Finds only attributes that are
   stored in the object itself: the first four that the instance got. */
uint64_t class_attribute(uint64_t instance, const char *name, size_t size);

/* Return the value of a name in the dict of the class itself, or 0. */
uint64_t class_look_up(uint64_t its_class, const char *name, size_t size);

/* Append "module.Outer.Name" as the class records it, even if the name leads to another
   object.  Classes of builtins have no module. */
void class_name(struct text *, uint64_t its_class);

/* Append the same name if it leads to this class.  Returns 0 if it does not; the text
   may then have the name nevertheless. */
int class_expression(struct text *, uint64_t its_class);

#pragma GCC visibility pop
