#pragma once
/* All instances of a class as one retainer, which retains the objects that are reachable
 * only through an instance of the class.
 *
 * Many paths may lead to the same memory, each of which retains little; such a retainer
 * shows the sum.  A class is left out if a single retainer has most of its instances and
 * little else, because the path of the single retainer is more specific (holders.c).
 */

#include <stddef.h>
#include <stdint.h>

#include "mapped_memory.h"
#include "question.h"
#include "text.h"

#pragma GCC visibility push(hidden)

/* The instances of a class, without the instances of derived classes */
struct instances {
    uint64_t its_class;         /* address of the class; 0 if it is no retainer */
    uint64_t count;             /* number of instances */
    uint64_t through;           /* words that the first walk reached through instances,
                                   at most the whole heap */
    uint64_t first;             /* address of one instance */
};
/* The chosen classes and their instances */
extern struct classes {
    struct instances of[HELD_CLASSES];
    struct room instances;      /* addresses of all instances, with the index of the
                                   class in the lowest three bits */
} classes;

/* Choose at most HELD_CLASSES classes that have many instances, through which the first
   walk reached a large share of the heap.  Needs walk.met.  Chooses no class if the heap
   has more than 20 million objects. */
void classes_find(void);
/* Unmap the addresses of the instances. */
void classes_forget(void);

/* Return the index of the chosen class of an object, or -1 if its class was not chosen.
   Instances of derived classes do not belong to a class. */
int classes_which(uint64_t object);

/* Append the text of a class as a retainer: "all instances of NAME", 0x1f, NAME. */
void classes_name(struct text *, int which);

#pragma GCC visibility pop
