#pragma once
/* The shadow stack, which contains the references of running RPython functions.
 *
 * An odd word in it is a bit pattern.  Bit i of the pattern is set if the i-th word from
 * there, towards the beginning of the stack, is not a reference.  The GC negates a pattern
 * when it has visited that part of the stack.
 */

#include <stdint.h>

/* A position on the shadow stack, or in a copy of its top. */
struct roots {
    const uintptr_t *start, *at;        /* next word: at[-1] */
    /* bit i is set if the i-th next word is no reference (see above) */
    intptr_t skip;
};

/* Return the next reference, starting at the top of the stack, or 0 after the last one. */
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
