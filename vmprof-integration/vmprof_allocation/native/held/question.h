#pragma once
/* The input (struct held_question) and the output (struct held_result) of the analysis
   of the heap (held.h).  The result is in memory that the parent process shares.

   *Queried objects* are the objects for which the caller asks how they are kept alive,
   such as the sampled objects. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Maximum numbers of single retainers, each of which has a bit in the words of
   holders.c, and of groups of retainers in the result */
#define HELD_HOLDERS    30
#define HELD_GROUPS     32
/* Maximum number of classes whose instances count as one retainer.  In a set of retainers,
   the bits of classes follow the bits of single retainers. */
#define HELD_CLASSES    4
/* Maximum size of the text of a retainer in bytes: its path, its type, and other paths */
#define HELD_MOST_TEXT  512
/* Maximum number of the steps of all paths, and maximum size of their texts in bytes */
#define HELD_PATHS      4096
#define HELD_PATHS_TEXT (1u << 19)

/* The reason why an analysis failed */
enum held_problem {
    HELD_ANSWERED,
    HELD_NO_MEMORY,
    HELD_UNKNOWN_TYPE,          /* a word in the place of an object's header has no known
                                   type */
    HELD_NO_ROOTS,              /* the list of roots is invalid, or the offset of a
                                   needed field is unknown */
    HELD_TOO_LARGE,             /* more than 2**32 - 1 objects or 8-byte words */
    HELD_NOT_FINISHED           /* the process was killed, or is still running */
};

/* The way in which a queried object is kept alive */
enum held_how {
    HELD_NO_PATH,               /* unreachable: garbage, or only C code refers to it */
    HELD_ALONE,                 /* each retainer in held_object.set retains the object */
    HELD_TOGETHER,              /* all retainers in held_object.set together retain the
                                   object, but no single one does */
    HELD_OTHERWISE,             /* reachable by the program without passing through a
                                   retainer */
    HELD_BY_INTERPRETER,        /* reachable only from objects that belong to the
                                   interpreter */
    HELD_BY_FINALIZER           /* reachable only from an object that waits for its
                                   finalizer */
};

/* The input of the analysis: the queried objects, and the places of the GC's data */
struct held_question {
    const char *types;          /* the output of probe/names.py: lines with types,
                                   references and offsets of fields */
    size_t types_size;
    uintptr_t type_info;        /* address of the GC's type table */
    uint64_t list;              /* address of a Python list that does not move.  Its
                                   items are the list of roots (as GcRefs) and
                                   sys.modules. */
    int wants_holders;          /* whether to find retainers and paths in addition to the
                                   reachable objects */
    const uint64_t *objects;    /* address of the first queried object, as an item of an
                                   array of structs */
    size_t stride, count;       /* bytes from one item to the next, and number of items */
};

/* Return the address of queried object number i, counted from 0. */
static inline uint64_t held_asked(const struct held_question *question, size_t i)
{
    return *(const uint64_t *)((const char *)question->objects + i * question->stride);
}

/* A retainer, a group of retainers, or a class whose instances are one retainer */
struct held_holder {
    uint64_t set;               /* bit of the retainer; the bits of all members if it is
                                   a group */
    uint64_t address;           /* address of the object or the class; 0 if it is a group */
    int64_t bytes, objects;     /* size and number of the retained objects */
    char text[HELD_MOST_TEXT];  /* path, 0x1f, type, then 0x1f and a path for each alias;
                                   empty if it is a group */
};

/* A step of a reference path, from a named object to the next one (see paths.h) */
struct held_path {
    uint32_t owner;             /* number of the previous step, from 1; 0 if it is the
                                   first step */
    uint32_t text;              /* offset in paths_text of the text of the step, 0x1f,
                                   and the type of its object */
    int64_t bytes;              /* bytes that the first walk reached through the object */
};

/* The answer for a queried object */
struct held_object {
    uint64_t set;               /* bits of the single retainers (see 'how'), and of each
                                   class whose instances retain the object */
    uint32_t path;              /* number of the last step of the path to the object, or
                                   to the nearest object with a name on the way; 0 if no
                                   object with a name is on the way */
    uint8_t how;                /* enum held_how */
};

/* The output, in memory that the parent process shares */
struct held_result {
    volatile int problem;       /* enum held_problem */
    int64_t objects, bytes;     /* number and size of all reachable objects */
    int64_t memory;             /* peak size in bytes of the memory that the analysis
                                   mapped */
    int64_t nanoseconds;        /* processor time of the analysis */
    size_t holder_count;
    struct held_holder holders[HELD_HOLDERS + HELD_GROUPS + HELD_CLASSES];
    uint32_t path_count, paths_text_size;
    struct held_path paths[HELD_PATHS];         /* paths[0] has number 1 */
    char paths_text[HELD_PATHS_TEXT];
    struct held_object found[]; /* one for each queried object */
};

/* Start an analysis.  From now on, held_fail() stores the reason in this result. */
void held_begin(struct held_result *);

/* Store 'problem' in the result that was passed to held_begin(), and end this process with
   status 1. */
__attribute__((noreturn)) void held_fail(enum held_problem problem);

#pragma GCC visibility pop
