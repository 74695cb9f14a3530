#include "jit_work.h"

#include "gc/roots.h"
#include "gc/types.h"
#include "machines/guarded_read.h"

/* values in the list: Counters of rpython/rlib/jit.py */
#define COMPILES        1       /* the other phase is tracing */

#define ROOTS           128     /* words of the shadow stack that are read */
#define OF_LOG          48      /* number of references that are searched for a LogTrace
                                   object */
/* A trace has 6000 operations by default, and no list of them is larger.  Larger objects
   are the program's, which runs while the JIT traces it. */
#define LARGEST         (64 << 10)

/* RPython's layout of a list */
struct list {
    uint64_t header;
    int64_t length;
    const struct {
        uint64_t header;
        int64_t length;
        int64_t item[1];
    } *items;
};

/* hook_place.jit_phases and hook_place.roots, or NULL if they are unknown. */
static const struct list *const *phases;
static const uintptr_t *const *roots_end;

void jit_work_prepare(uintptr_t its_phases, uintptr_t roots)
{
    phases = (const struct list *const *)its_phases;
    roots_end = (const uintptr_t *const *)roots;
}

/* Read the ROOTS words at the top of the shadow stack, which may have fewer.  Returns 0 if
   they cannot be read. */
static int read_roots(uintptr_t words[ROOTS])
{
    return roots_end != NULL &&
           guarded_read((uintptr_t)(*roots_end - ROOTS), words, ROOTS * sizeof *words);
}

/* Return the owner of the innermost object on the shadow stack whose owner is known, which
   is also the owner of the running function. */
static enum types_whose innermost(const uintptr_t words[ROOTS])
{
    struct roots roots = { words, words + ROOTS, 0 };
    enum types_whose whose = TYPES_ANYBODYS;
    uintptr_t root;
    uint64_t header;

    while (whose == TYPES_ANYBODYS && (root = roots_next(&roots)) != 0) {
        if (!guarded_read(root, &header, sizeof header))
            break;
        whose = types_whose(header);
    }
    return whose;
}

/* Return whether a trace is being written to the log. */
static int writes_log(const uintptr_t words[ROOTS])
{
    struct roots roots = { words, words + ROOTS, 0 };
    struct iovec objects[OF_LOG], to[OF_LOG];
    uint64_t headers[OF_LOG];
    uintptr_t root;
    int count = 0, i;

    while (count < OF_LOG && (root = roots_next(&roots)) != 0) {
        objects[count] = (struct iovec){ (void *)root, sizeof *headers };
        to[count] = (struct iovec){ &headers[count], sizeof *headers };
        count++;
    }
    if (!guarded_read_places(objects, to, count))
        return 0;
    for (i = 0; i < count; i++)
        if (types_whose(headers[i]) == TYPES_LOGS)
            return 1;
    return 0;
}

enum jit_work jit_work(size_t size, int has_log)
{
    const struct list *list = phases == NULL ? NULL : *phases;
    uintptr_t words[ROOTS];
    int compiles;

    if (list == NULL || list->length <= 0)
        return JIT_WORK_NONE;
    compiles = list->items->item[list->length - 1] == COMPILES;
    if ((has_log || !compiles) && read_roots(words)) {
        if (has_log && writes_log(words))
            return JIT_WORK_LOG;
        compiles |= size < LARGEST && innermost(words) == TYPES_JITS;
    }
    return compiles ? JIT_WORK_COMPILER : JIT_WORK_NONE;
}
