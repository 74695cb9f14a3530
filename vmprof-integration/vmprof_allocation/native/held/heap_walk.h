#pragma once
/* The first walk: all that can be reached, breadth first, from one kind of roots after
 * the other, so that what the program itself refers to is found there.
 *
 * Modules come first, and frames next.  Frames, and what threads have of their own, are
 * kept for their turn: something of the interpreter's may refer to them.
 */

#include <stddef.h>
#include <stdint.h>

#include "gc_types.h"
#include "mapped_memory.h"
#include "question.h"

#pragma GCC visibility push(hidden)

enum root_kind {
    ROOT_MODULE,                /* and its dict */
    ROOT_FRAME,                 /* of a thread; or compiled code, or a context */
    ROOT_INTERPRETER,
    ROOT_FINALIZER,             /* it has one, and nothing else may refer to it */
    ROOT_KINDS
};

struct root {
    uint64_t object;
    uint64_t name;              /* of a module: its key in sys.modules; 0 */
    uint32_t kind;
    uint32_t at;                /* its number among what was met */
};

/* What was met, and refers to something */
struct met {
    uint64_t object;
    uint32_t from;              /* the number of what it was reached from; its own: it is
                                   a root */
    uint32_t through;           /* words that were reached through it, with its own */
};

/* What is asked about */
struct asked {
    uint64_t object;            /* or 0 */
    uint32_t at;                /* its number among what was met, or that of what it was
                                   reached from */
};
#define NOT_MET         UINT32_MAX

extern struct walk {
    struct room met, roots;
    struct room ignored;        /* objects that are none of the program's */
    struct asked *asked;        /* by address: so many places */
    size_t asked_places;        /* a power of two */
    uint64_t modules;           /* sys.modules */
    uint32_t frames_end;        /* numbers of what programs refer to are below this */
    uint32_t finalizers_begin;  /* what only a finalizer refers to has this number, or a
                                   larger one */
    int64_t objects, bytes;     /* all that was met */
} walk;

void walk_heap(const struct held_question *question);
void walk_forget(void);
/* What only paths.h needs: the roots stay. */
void walk_forget_met(void);

/* Where an object is, or would be, among what is asked about */
static inline struct asked *walk_asked(uint64_t object)
{
    size_t at = (size_t)(object * 0x9e3779b97f4a7c15u >> 32);

    for (;; at++) {
        struct asked *one = &walk.asked[at & (walk.asked_places - 1)];
        if (one->object == object || one->object == 0)
            return one;
    }
}

static inline struct met *walk_met(uint32_t number)
{
    return &((struct met *)walk.met.at)[number];
}

/* The entries of a dict, of a class or of one of Python's */
struct entries {
    uint64_t next, end;
    uint64_t item_size;
    int has_keys, has_values;   /* both are references */
    uint64_t key, value;        /* of the one that was asked for last */
};
/* Returns 0 if there are none. */
int walk_entries(uint64_t table, struct entries *entries);
/* Of a dict of Python's; returns 0 if the object is none. */
int walk_dict(uint64_t object, struct entries *entries);
void walk_entries_of(uint64_t array, struct entries *entries);

/* Returns 0 if there is no more. */
static inline int walk_next(struct entries *entries)
{
    if (entries->next == entries->end)
        return 0;
    entries->key = word_at(entries->next);
    entries->value = word_at(entries->next + 8);
    entries->next += entries->item_size;
    return 1;
}
/* A value that may be in a cell */
uint64_t walk_unwrapped(uint64_t value);
/* What is in such a table by this name, or 0 */
uint64_t walk_look_up(uint64_t table, const char *name, size_t size);
/* The dict of a module, or 0 */
uint64_t walk_module_dict(uint64_t module);
/* The table of the module of this name, or 0: among the roots */
uint64_t walk_module_table(const char *name, size_t size);

#pragma GCC visibility pop
