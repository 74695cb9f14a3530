#pragma once
/* All instances of a class as one holder: what can't be reached but through one of them.
 *
 * It tells of what many paths lead to, none of which holds much.  Where one of the other
 * holders has most of the instances, and little else, its path says it better.
 */

#include <stddef.h>
#include <stdint.h>

#include "mapped_memory.h"
#include "question.h"
#include "text.h"

#pragma GCC visibility push(hidden)

struct instances {
    uint64_t its_class;         /* or 0: it is none of the holders */
    uint64_t count;
    uint64_t through;           /* words that were reached through them first */
    uint64_t first;             /* one of them */
};
extern struct classes {
    struct instances of[HELD_CLASSES];
    struct room instances;      /* addresses of all of them, with the number of the class
                                   in the lowest three bits */
} classes;

/* After walk_heap(): choose those that have many instances, through which much was
   reached. */
void classes_find(void);
void classes_forget(void);

/* Which of them an object is an instance of, and of no class that is derived from it; -1:
   of none */
int classes_which(uint64_t object);

/* What it is called, as a holder */
void classes_name(struct text *, int which);

#pragma GCC visibility pop
