#pragma once
/* PyPy's table of the JIT's machine code: which functions are inlined where.
 *
 * It is a skip list of pieces of code, by their address.  A piece has a list of *entries*:
 * a function, from which offset in the code on and up to which one it runs, and where the
 * list goes on behind those that run inside of it.  RPython's
 * jit/backend/llsupport/codemap.py writes it, with the GIL held.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct codemap_entry {
    int64_t function;           /* vmprof's number; 0: not told */
    int64_t start, stop;        /* offsets in the code: it runs before 'stop' */
    int64_t next;               /* the entry behind all that is inside of this one,
                                   times 4 */
};

struct codemap_piece {
    uintptr_t start;
    size_t size;                /* bytes */
    const struct codemap_entry *entries;
    int count;
};

/* No more functions are inlined in each other; PyPy's vmprof looks no further. */
#define CODEMAP_DEEPEST 384

/* Where the list begins (probe/codemap.py); 0: not known */
void codemap_prepare(uintptr_t head);
int codemap_is_known(void);

/* The piece that holds 'address'; returns 0 if none does. */
int codemap_find(uintptr_t address, struct codemap_piece *piece);

/* What runs at this offset: indices of entries, from the outermost on.  Returns how
   many. */
int codemap_at(const struct codemap_piece *piece, int64_t offset,
               int which[CODEMAP_DEEPEST]);

#pragma GCC visibility pop
