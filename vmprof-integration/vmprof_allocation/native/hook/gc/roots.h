#pragma once
/* The stack of roots: what functions of RPython's that run refer to.
 *
 * An odd number in it has a bit for each of the words behind, towards the beginning, that are
 * no reference; the GC makes it negative when it has seen it.
 */

#include <stdint.h>

struct roots {
    const uintptr_t *start, *at;        /* the next word is in front of this one */
    intptr_t skip;
};

/* The next reference, from the end of the stack on; 0: there is none. */
static inline uintptr_t roots_next(struct roots *roots)
{
    while (roots->at > roots->start) {
        uintptr_t word = *--roots->at;
        int is_skipped = (int)(roots->skip & 1);

        if (!is_skipped && (word & 1) != 0)
            roots->skip = (intptr_t)word < 0 ? -(intptr_t)word : (intptr_t)word;
        roots->skip >>= 1;
        if (!is_skipped && (word & 1) == 0 && word != 0)
            return word;
    }
    return 0;
}
