#include "jit_work.h"

#include "../machines/guarded_read.h"
#include "roots.h"
#include "types.h"

/* Items of the list: rpython/rlib/jit.py's Counters */
#define COMPILES        1       /* the other one is that it traces */

#define ROOTS           128     /* that are looked at */
/* A trace has 6000 operations by default: no list of them is larger.  Larger objects are
   the program's, of which the JIT runs what it traces. */
#define LARGEST         (64 << 10)

/* As RPython lays them out */
struct list {
    uint64_t header;
    int64_t length;
    const struct {
        uint64_t header;
        int64_t length;
        int64_t item[1];
    } *items;
};

static const struct list *const *phases;
static const uintptr_t *const *roots_end;

void jit_work_prepare(uintptr_t its_phases, uintptr_t roots)
{
    phases = (const struct list *const *)its_phases;
    roots_end = (const uintptr_t *const *)roots;
}

/* Whose is the innermost function that runs, of those of which that can be told?  How deep
   the stack of roots is, is not known. */
static enum types_whose innermost(void)
{
    uintptr_t words[ROOTS], root;
    struct roots roots = { words, words + ROOTS, 0 };
    uint64_t header;
    enum types_whose whose;

    if (!guarded_read((uintptr_t)(*roots_end - ROOTS), words, sizeof words))
        return TYPES_ANYBODYS;
    while ((root = roots_next(&roots)) != 0) {
        if (!guarded_read(root, &header, sizeof header))
            return TYPES_ANYBODYS;
        whose = types_whose(header);
        if (whose != TYPES_ANYBODYS)
            return whose;
    }
    return TYPES_ANYBODYS;
}

static int is_jits(enum types_whose whose)
{
    return whose == TYPES_JITS || whose == TYPES_LOGS;
}

int jit_work_is_log(void)
{
    return roots_end != NULL && innermost() == TYPES_LOGS;
}

int jit_work_is_on(size_t size)
{
    const struct list *list = phases == NULL ? NULL : *phases;

    if (list == NULL || list->length <= 0)
        return 0;
    return list->items->item[list->length - 1] == COMPILES ||
           (roots_end != NULL && size < LARGEST && is_jits(innermost()));
}
