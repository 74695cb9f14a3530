#include "inlined.h"

#include <string.h>

#include "machines/guarded_read.h"
#include "machines/jit_call.h"
#include "python_call.h"

#define PIECES          1024    /* that are remembered */
#define MOST_RAISING    16      /* calls of a piece that raise; more are not looked at */
#define LARGE           12288   /* bytes of a piece; of one whose trace was too long, measured:
                                   15,000 to 23,000 */
#define CHUNK           4096    /* bytes of code that are read at once */

/* Pieces without a call that raises, which are nearly all, take as much room here. */
static struct known {
    uintptr_t start;
    const struct codemap_entry *entries;
    int count;                          /* entries */
    int is_certain;                     /* that no call was taken for another one */
    int returns;                        /* its code ends with a return, not a jump */
    int left_before;                    /* functions that it begins in, by the table, and
                                           that were left before */
    int raising_count;
    struct raising {
        int64_t end;                    /* offset behind the call */
        int64_t function;               /* 0: of another interpreter than Python's */
    } raising[MOST_RAISING];            /* by their place */
} all[PIECES];

static void look_at(const struct codemap_piece *piece, uintptr_t address,
                    struct known *known)
{
    struct python_call call = python_call_at(address, piece);
    int count = known->raising_count;

    if (!call.raises || call.is_left || call.end == 0 || count == MOST_RAISING ||
        (call.function == 0 && !call.is_others))
        return;
    /* of a call there are two places, that of the callee and that of what helps it */
    if (count > 0 && known->raising[count - 1].end == call.end)
        return;
    known->raising[count].end = call.end;
    known->raising[count].function = call.function;
    known->raising_count++;
}

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

/* Does this call end the innermost function? */
static int ends(const struct raising *raising, const struct codemap_piece *piece,
                const int *which, int found)
{
    if (found == 0)
        return 0;
    if (raising->function == 0)
        return piece->entries[which[found - 1]].function == 0;
    return python_call_may_be_own(raising->function, piece, which, found);
}

/* What runs, while a piece is gone through */
struct state {
    const struct codemap_piece *piece;
    const struct raising *next, *last;
    int *which;
    int found;
};

/* All calls that raised up to this offset have ended what they end. */
static void go_to(struct state *state, int64_t offset)
{
    for (; state->next < state->last && state->next->end <= offset; state->next++)
        state->found -= ends(state->next, state->piece, state->which, state->found);
}

/* What runs at 'offset', as codemap_at() */
static int run(const struct codemap_piece *piece, const struct known *known,
               int64_t offset, int which[CODEMAP_DEEPEST])
{
    const struct codemap_entry *entries = piece->entries;
    struct state state = {
        piece, known->raising, known->raising + known->raising_count, which, 0
    };
    int open[CODEMAP_DEEPEST];          /* as the table has it */
    int opened = 0, left_before = known->left_before, i;

    for (i = 0;; i++) {
        if (i == piece->count || entries[i].start > 0) {
            state.found -= left_before;
            left_before = 0;
        }
        /* what the table leaves before it enters the next one */
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

/* When a trace ends, all functions are left, or, if it ends with a jump to a loop, all but
   the one of the loop.  If the table has more that are never left, and no call of this
   piece is the reason, the piece began with them.  A trace that became too long ends
   anywhere, so that of large pieces nothing is known. */
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
