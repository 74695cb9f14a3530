#pragma once
/* All instances of a class as one retainer, which retains the objects that are reachable
 * only through an instance of the class.
 *
 * Many objects may each retain little; as instances of one class, they may retain much.
 * A class is left out if a single object retains most of its instances and little else,
 * because the reference path to that object is more specific (holders.c).
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
    uint64_t through;           /* 8-byte words that the first walk reached through
                                   instances, at most the words of the whole heap */
    uint64_t first;             /* address of one instance */
};
/* The classes that were chosen as retainers, and their instances */
extern struct classes {
    struct instances of[HELD_CLASSES];
    struct room instances;      /* addresses of all instances, each with the index of its
                                   class in 'of' in the lowest three bits */
} classes;

/* Fill in 'classes' with at most HELD_CLASSES classes that have many instances, through
   which the first walk reached a large share of the heap.  Needs walk.met.  Chooses no
   class if the heap has more than 20 million objects. */
void classes_find(void);
/* Unmap classes.instances. */
void classes_forget(void);

/* Return the index in classes.of of the class of an object, or -1 if this class was not
   chosen.  An instance of a derived class is no instance of its base here. */
int classes_which(uint64_t object);

/* Append the text in held_holder for the class with the index 'which' in classes.of: "all
   instances of NAME", 0x1f, NAME. */
void classes_name(struct text *, int which);

#pragma GCC visibility pop
