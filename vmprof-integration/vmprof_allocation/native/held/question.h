#pragma once
/* What is asked, and what is answered: see held.h. */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A bit of a word says something of each */
#define HELD_HOLDERS    30
#define HELD_GROUPS     32
/* Classes of which all instances are one: their bits come behind those of holders. */
#define HELD_CLASSES    4
/* Bytes of a path with its type, at most */
#define HELD_MOST_TEXT  512
/* Steps of paths; and bytes of all their texts */
#define HELD_PATHS      4096
#define HELD_PATHS_TEXT (1u << 19)

/* Why there is no answer */
enum held_problem {
    HELD_ANSWERED,
    HELD_NO_MEMORY,
    HELD_UNKNOWN_TYPE,          /* an object's header is none */
    HELD_NO_ROOTS,              /* what was asked is no list of roots; or where the fields
                                   of a type are is not known */
    HELD_TOO_LARGE,             /* more objects, or words, than numbers have bits */
    HELD_NOT_FINISHED           /* the process was ended, or is still at work */
};

/* How an object that is asked about is held */
enum held_how {
    HELD_NO_PATH,               /* garbage, or held by what the GC does not know */
    HELD_ALONE,                 /* each holder of the set alone holds it */
    HELD_TOGETHER,              /* those of the set do */
    HELD_OTHERWISE,             /* by the program, but by none of the holders */
    HELD_BY_INTERPRETER,        /* only by what the interpreter itself refers to */
    HELD_BY_FINALIZER           /* it waits for its finalizer, or is held by what does */
};

struct held_question {
    const char *types;          /* of probe/names.py: types, and fields */
    size_t types_size;
    uintptr_t type_info;        /* the GC's table of types */
    uint64_t list;              /* a list of Python's: of the roots as GcRefs, and
                                   sys.modules; it does not move */
    int wants_holders;          /* in addition to reachability */
    const uint64_t *objects;    /* that are asked about: addresses, ... */
    size_t stride, count;       /*   each so many bytes behind the one before */
};

static inline uint64_t held_asked(const struct held_question *question, size_t i)
{
    return *(const uint64_t *)((const char *)question->objects + i * question->stride);
}

struct held_holder {
    uint64_t set;               /* its bit; of a group, several */
    uint64_t address;           /* of a group: 0 */
    int64_t bytes, objects;     /* that are held by it alone */
    char text[HELD_MOST_TEXT];  /* path, 0x1f, type, and "0x1f path" for each other one;
                                   empty: it is a group */
};

/* A step of a path, from an object that has a name to the next one */
struct held_path {
    uint32_t owner;             /* the one before, a number from 1 on; or 0 */
    uint32_t text;              /* offset: what it adds to the path, 0x1f, type */
    int64_t bytes;              /* that were reached through the object first */
};

struct held_object {
    uint64_t set;               /* of holders; and of classes: each alone holds it */
    uint32_t path;              /* to it, or to the nearest that has a name; or 0 */
    uint8_t how;                /* enum held_how */
};

/* In memory that the parent sees, too */
struct held_result {
    volatile int problem;       /* enum held_problem */
    int64_t objects, bytes;     /* all that was reached */
    int64_t memory;             /* bytes that this took */
    int64_t nanoseconds;        /* of processor time */
    size_t holder_count;
    struct held_holder holders[HELD_HOLDERS + HELD_GROUPS + HELD_CLASSES];
    uint32_t path_count, paths_text_size;
    struct held_path paths[HELD_PATHS];         /* number 1 is the first one */
    char paths_text[HELD_PATHS_TEXT];
    struct held_object found[]; /* of each object that is asked about */
};

/* What goes wrong from now on is said there. */
void held_begin(struct held_result *);

/* The result's problem, and the end of this process */
__attribute__((noreturn)) void held_fail(enum held_problem problem);

#pragma GCC visibility pop
