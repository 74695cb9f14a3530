#pragma once
/* Names for objects: the name of their type, and the step of a reference path to an object.
 *
 * A step leads from an object with a name to the next such object.  Between the two may be
 * objects of the interpreter that have no name in Python, such as hash tables and cells.
 */

#include <stdint.h>

#include "gc_types.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* Maximum number of objects in way.inside */
#define WAY_INSIDE  4
/* A step, from the object 'owner' to 'object' */
struct way {
    uint64_t owner, object;
    uint64_t before;            /* the object with a name before the owner on the path,
                                   or 0 */
    const struct gc_type *type; /* type of the owner */
    int is_module;              /* whether the owner is a module's dict */
    uint64_t first;             /* the first object after the owner on the way to
                                   'object' */
    uint64_t inside[WAY_INSIDE];    /* the referrer of 'object', the referrer of this
                                       referrer, and so on up to the owner; then 0.  If
                                       there are more than WAY_INSIDE objects, the last
                                       ones are missing. */
};

/* Append the name of a step: the end of an expression, such as ".items" or "[3]", or other
   words after an arrow, such as " -> local x".  Returns 0 if the step has no name; the text
   may then have an incomplete one. */
int name_step(struct text *, const struct way *);

/* Append "in FUNCTION() FILE:LINE" for a frame; the line is the first line of the
   function. */
void name_frame(struct text *, uint64_t frame);

/* Append the name of an object's type or class. */
void name_type(struct text *, uint64_t object);

#pragma GCC visibility pop
