#pragma once
/* The first walk: visit all reachable objects, breadth first.
 *
 * The roots are visited kind by kind, in the order of enum root_kind.  All objects that are
 * reachable from one kind are visited before the roots of the next kind.  So an object to
 * which the program refers is attributed to the program, even if the interpreter also
 * refers to the object.
 *
 * Frames and contexts of threads are *claimed* before the walk: they are marked as visited,
 * so that the walk skips them until they become roots.  Otherwise, an object of a module or
 * of the interpreter could lead to them, and from there to all local variables.
 */

#include <stddef.h>
#include <stdint.h>

#include "gc_types.h"
#include "mapped_memory.h"
#include "question.h"

#pragma GCC visibility push(hidden)

/* Kinds of roots, in the order in which they are visited */
enum root_kind {
    ROOT_MODULE,                /* a module of sys.modules, and its dict */
    ROOT_FRAME,                 /* frame of a thread, frame of compiled code, or a
                                   thread's execution context */
    ROOT_INTERPRETER,
    ROOT_FINALIZER,             /* object with a finalizer, to which nothing else may
                                   refer */
    ROOT_KINDS
};

/* A root of the walk */
struct root {
    uint64_t object;
    uint64_t name;              /* key of a module in sys.modules; 0 for other kinds */
    uint32_t kind;              /* enum root_kind */
    uint32_t at;                /* index in walk.met */
};

/* A visited object that may have references, or that is a root */
struct met {
    uint64_t object;
    uint32_t from;              /* index in walk.met of the object from which the walk
                                   reached this object; its own index if it is a root */
    uint32_t through;           /* 8-byte words that the walk reached through this object,
                                   including its own words */
};

/* An entry of the hash table of queried objects (question.h) */
struct asked {
    uint64_t object;            /* address; 0 if the entry is empty */
    uint32_t at;                /* index of the object in walk.met, or of its referrer if
                                   the object has no references; NOT_MET if the object was
                                   not visited */
};
#define NOT_MET         UINT32_MAX

/* The results of the walk */
extern struct walk {
    struct room met, roots;     /* arrays of struct met and of struct root, in the order
                                   of the visits */
    struct room ignored;        /* addresses of objects that exist only for this analysis,
                                   such as the list of roots */
    struct asked *asked;        /* hash table of queried objects, by address */
    size_t asked_places;        /* number of entries of 'asked', a power of two */
    uint64_t modules;           /* sys.modules */
    uint32_t frames_end;        /* objects that the program can reach have smaller indexes
                                   in 'met' than this */
    uint32_t finalizers_begin;  /* objects that only roots of kind ROOT_FINALIZER reach
                                   have this index in 'met' or a larger one */
    int64_t objects, bytes;     /* number and size of all visited objects */
} walk;

/* Walk the whole heap and fill in 'walk'.  Needs gc_types_read() and marks_begin()
   before. */
void walk_heap(const struct held_question *question);
/* Unmap the memory of 'walk'. */
void walk_forget(void);
/* Unmap only walk.met, which paths.c and classes_find() need, but the second walk does
   not. */
void walk_forget_met(void);

/* Return the entry of an object in walk.asked, or an empty entry if the object is no
   queried object. */
static inline struct asked *walk_asked(uint64_t object)
{
    size_t at = (size_t)(object * 0x9e3779b97f4a7c15u >> 32);

    for (;; at++) {
        struct asked *one = &walk.asked[at & (walk.asked_places - 1)];
        if (one->object == object || one->object == 0)
            return one;
    }
}

/* Return the visited object with an index in walk.met. */
static inline struct met *walk_met(uint32_t number)
{
    return &((struct met *)walk.met.at)[number];
}

/* An iterator over the entries of a dict: a hash table of the interpreter or the program */
struct entries {
    uint64_t next, end;
    uint64_t item_size;
    int has_keys, has_values;   /* whether keys and values are references */
    uint64_t key, value;        /* of the entry that walk_next() reached last */
};
/* Start at the first entry of a hash table.  Returns 0 if 'table' is no hash table, or
   if its keys or values are no references; 'table' may be 0. */
int walk_entries(uint64_t table, struct entries *entries);
/* Start at the first entry of a Python dict.  Returns 0 if the object is no dict, or if
   walk_entries() returns 0 for its hash table. */
int walk_dict(uint64_t object, struct entries *entries);
/* Start at the first entry of 'array', in which a hash table stores its entries.  The keys
   and values need not be references. */
void walk_entries_of(uint64_t array, struct entries *entries);

/* Read the key and the value of the next entry.  Returns 0 at the end. */
static inline int walk_next(struct entries *entries)
{
    if (entries->next == entries->end)
        return 0;
    entries->key = word_at(entries->next);
    entries->value = word_at(entries->next + 8);
    entries->next += entries->item_size;
    return 1;
}
/* Return the content of a cell that a dict stores in the place of a value, or 'value'
   itself if it is no such cell. */
uint64_t walk_unwrapped(uint64_t value);
/* Return the value of the key 'name' in a hash table, or 0 if the table does not have
   it. */
uint64_t walk_look_up(uint64_t table, const char *name, size_t size);
/* Return the dict of a module, or 0 if 'module' is no module or has no dict. */
uint64_t walk_module_dict(uint64_t module);
/* Return the hash table of the dict of the module that sys.modules has under a name, or 0
   if no module has this name there. */
uint64_t walk_module_table(const char *name, size_t size);

#pragma GCC visibility pop
