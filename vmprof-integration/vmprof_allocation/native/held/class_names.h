#pragma once
/* Reads Python classes on the heap: the class of an instance, the bases and the name of a
   class, and attributes of classes and instances. */

#include <stdint.h>

#include "gc_types.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* Return the class of an object whose type has a map (gc_type.map), or 0 if the object has
   no map yet. */
uint64_t class_of(uint64_t instance, const struct gc_type *type);

/* Return the class at index 'number' in the method resolution order of a class; index 0
   is the class itself.  Returns 0 after the last class.  If the order is unknown, the only
   index is 0. */
uint64_t class_in_mro(uint64_t its_class, uint64_t number);

/* Return whether the full name of a class is 'name', such as "module.Outer.Name". */
int class_is(uint64_t its_class, const char *name);

/* Return the value of an attribute of an instance, or 0 if it was not found.  Finds only
   attributes that are stored in the object itself: the first four that the instance got. */
uint64_t class_attribute(uint64_t instance, const char *name, size_t size);

/* Return the value of a name in the dict of the class itself, without its bases, or 0 if
   the dict does not have the name. */
uint64_t class_look_up(uint64_t its_class, const char *name, size_t size);

/* Append the full name of a class, "module.Outer.Name", from its __module__ and its
   qualified name.  The module "builtins" is omitted.  The program may have given this name
   to another object. */
void class_name(struct text *, uint64_t its_class);

/* Append the full name of a class if this name, looked up from sys.modules, leads to the
   class.  Returns 0 if it does not; the text may then have the name nevertheless. */
int class_expression(struct text *, uint64_t its_class);

#pragma GCC visibility pop
