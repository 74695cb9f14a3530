#include "inlined.h"

#include <string.h>

#include "machines/guarded_read.h"
#include "machines/jit_call.h"
#include "python_call.h"

#define PIECES          1024    /* pieces in the cache */
#define MOST_RAISING    16      /* maximum number of raising calls of a piece; further
                                   calls are ignored */
#define LARGE           12288   /* bytes of a large piece; the pieces of traces that
                                   were too long had 15,000 to 23,000 bytes */
#define CHUNK           4096    /* bytes of code that are read at once */

/* A cache entry: the calls in a piece of compiled code that raise an exception.  Nearly all
   pieces have none, but each entry takes the same memory. */
static struct known {
    uintptr_t start;
    const struct codemap_entry *entries;
    int count;                          /* number of entries */
    int is_certain;                     /* whether each call is known to be, or not to
                                           be, a call of a Python function */
    int returns;                        /* whether the code ends with a return, not a
                                           jump */
    int left_before;                    /* number of functions in which the piece begins
                                           according to the table, but which were left
                                           before the piece */
    int raising_count;
    struct raising {
        int64_t end;                    /* offset after the call */
        int64_t function;               /* the called function; 0 for code of an
                                           interpreter other than Python's */
    } raising[MOST_RAISING];            /* sorted by offset */
} all[PIECES];

/* Add the call with this return address if it raises. */
static void look_at(const struct codemap_piece *piece, uintptr_t address,
                    struct known *known)
{
    struct python_call call = python_call_at(address, piece);
    int count = known->raising_count;

    if (!call.raises || call.is_left || call.end == 0 || count == MOST_RAISING ||
        (call.function == 0 && !call.is_others))
        return;
    /* A call has two return addresses: the callee's and the helper's. */
    if (count > 0 && known->raising[count - 1].end == call.end)
        return;
    known->raising[count].end = call.end;
    known->raising[count].function = call.function;
    known->raising_count++;
}

/* Search the machine code of a piece for calls that raise. */
static void find_raising(const struct codemap_piece *piece, struct known *known)
{
    unsigned char code[CHUNK];
    const size_t size = JIT_CODE_LOOK;
    size_t offset, i, bytes, call;

    for (offset = 0; offset + size <= piece->size; offset += bytes - size + 1) {
        bytes = piece->size - offset < CHUNK ? piece->size - offset : CHUNK;
        if (!guarded_read(piece->start + offset, code, bytes))
            return;
        for (i = 0; i + size <= bytes; i++)
            if (jit_code_returns(code + i, bytes - i))
                known->returns = 1;
            else if ((call = jit_code_calls(code + i)) != 0)
                look_at(piece, piece->start + offset + i + call, known);
    }
}

/* Return whether a call that raises ends the innermost of the 'found' running functions,
   whose entries are in 'which'. */
static int ends(const struct raising *raising, const struct codemap_piece *piece,
                const int *which, int found)
{
    if (found == 0)
        return 0;
    if (raising->function == 0)
        return piece->entries[which[found - 1]].function == 0;
    return python_call_may_be_own(raising->function, piece, which, found);
}

/* The state of a walk through a piece: the calls that are still to come, and the running
   functions. */
struct state {
    const struct codemap_piece *piece;
    const struct raising *next, *last;
    int *which;
    int found;
};

/* Remove the running functions that a raising call up to this offset ends. */
static void go_to(struct state *state, int64_t offset)
{
    for (; state->next < state->last && state->next->end <= offset; state->next++)
        state->found -= ends(state->next, state->piece, state->which, state->found);
}

/* Find the functions that run at 'offset', like codemap_at(), but corrected by the raising
   calls and by known->left_before. */
static int run(const struct codemap_piece *piece, const struct known *known,
               int64_t offset, int which[CODEMAP_DEEPEST])
{
    const struct codemap_entry *entries = piece->entries;
    struct state state = {
        piece, known->raising, known->raising + known->raising_count, which, 0
    };
    int open[CODEMAP_DEEPEST];          /* the running functions according to the table */
    int opened = 0, left_before = known->left_before, i;

    for (i = 0;; i++) {
        if (i == piece->count || entries[i].start > 0) {
            state.found -= left_before;
            left_before = 0;
        }
        /* functions that the table leaves before it enters the next one */
        while (opened > 0 && (i == piece->count ||
                              entries[open[opened - 1]].next / 4 <= i)) {
            int64_t stop = entries[open[--opened]].stop;
            if (stop > offset || stop >= (int64_t)piece->size)
                break;
            go_to(&state, stop);
            state.found -= state.found > 0;
        }
        if (i == piece->count || entries[i].start > offset || opened == CODEMAP_DEEPEST)
            break;
        go_to(&state, entries[i].start);
        open[opened++] = i;
        which[state.found++] = i;
    }
    go_to(&state, offset);
    return state.found;
}

/* Count the functions that were left before the piece begins, although the table has
 * them.
 *
 * When a trace ends, it leaves all functions.  If it ends with a jump to a loop, it
 * leaves all except the function of the loop.  If the table has more functions that are
 * never left, and no call of this piece is the reason, the piece began with these
 * functions.  A trace that was too long ends anywhere, so nothing is known about large
 * pieces.
 */
static int count_left_before(const struct codemap_piece *piece, const struct known *known)
{
    const struct codemap_entry *entries = piece->entries;
    int which[CODEMAP_DEEPEST];
    int begins_in = 0, left;

    if (piece->size > LARGE)
        return 0;
    while (begins_in < piece->count && entries[begins_in].start == 0)
        begins_in++;
    left = run(piece, known, (int64_t)piece->size - 1, which) - !known->returns;
    return left > 0 && left < begins_in ? left : 0;
}

/* Return the calls of a piece that raise.  Searches the piece if it is not in the cache. */
static const struct known *known_of(const struct codemap_piece *piece)
{
    struct known *known = &all[(piece->start >> 4 ^ piece->start >> 14) % PIECES];

    if (known->start != piece->start || known->entries != piece->entries ||
        known->count != piece->count ||
        (!known->is_certain && python_call_is_certain())) {
        memset(known, 0, sizeof *known);
        known->start = piece->start;
        known->entries = piece->entries;
        known->count = piece->count;
        known->is_certain = python_call_is_certain();
        find_raising(piece, known);
        known->left_before = count_left_before(piece, known);
    }
    return known;
}

int inlined_at(const struct codemap_piece *piece, int64_t offset,
               int which[CODEMAP_DEEPEST])
{
    const struct known *known = known_of(piece);

    if (known->raising_count == 0 && known->left_before == 0)
        return codemap_at(piece, offset, which);
    return run(piece, known, offset, which);
}
