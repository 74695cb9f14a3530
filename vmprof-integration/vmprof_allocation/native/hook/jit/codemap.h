#pragma once
/* PyPy's table of compiled code, which has the functions that run at each place in the
 * code.
 *
 * The table is a skip list of pieces of machine code, sorted by address.  A piece is the
 * code of one loop or bridge.  It has a list of *entries*.  An entry has the number of a
 * function, and the offsets in the code between which the function runs.  It also has the
 * index of the next entry that is not inlined in this one.  RPython's
 * jit/backend/llsupport/codemap.py writes the table with the GIL.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A function that runs in a piece, in PyPy's own layout. */
struct codemap_entry {
    int64_t function;           /* vmprof's number; 0 if the table does not contain
                                   the function */
    int64_t start, stop;        /* offsets in the code; the function runs before 'stop' */
    int64_t next;               /* 4 times the index of the entry after all entries
                                   that are inlined in this one */
};

/* The machine code of one loop or bridge. */
struct codemap_piece {
    uintptr_t start;
    size_t size;                /* size in bytes */
    const struct codemap_entry *entries;
    int count;
};

/* Maximum depth of inlined functions; PyPy's vmprof has the same limit. */
#define CODEMAP_DEEPEST 384

/* Set the address of the first node (probe/codemap.py), or 0 if it is unknown. */
void codemap_prepare(uintptr_t head);
/* Return whether the table was found. */
int codemap_is_known(void);

/* Find the piece that contains 'address'.  Returns 0 if no piece contains it. */
int codemap_find(uintptr_t address, struct codemap_piece *piece);

/* Find the functions that run at this offset of the piece.  Stores the indices of their
   entries in 'which', outermost first, and returns their number. */
int codemap_at(const struct codemap_piece *piece, int64_t offset,
               int which[CODEMAP_DEEPEST]);

#pragma GCC visibility pop
