#pragma once
/* What Python's classes say of themselves. */

#include <stdint.h>

#include "gc_types.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* Of an object whose type has a map: its class, or 0 */
uint64_t class_of(uint64_t instance, const struct gc_type *type);

/* A class, and its bases, in the order in which they are asked for a name; 0: there are no
   more, or they are not known. */
uint64_t class_in_mro(uint64_t its_class, uint64_t number);

/* Whether "module.Outer.Name" is this */
int class_is(uint64_t its_class, const char *name);

/* What an instance has by this name, if that is one of the first attributes that it got; or
   0 */
uint64_t class_attribute(uint64_t instance, const char *name, size_t size);

/* What is in its dict by this name, or 0 */
uint64_t class_look_up(uint64_t its_class, const char *name, size_t size);

/* "module.Outer.Name", whatever that leads to */
void class_name(struct text *, uint64_t its_class);

/* The same, if it leads to this class; returns 0 if not. */
int class_expression(struct text *, uint64_t its_class);

#pragma GCC visibility pop
