#include "python_call.h"

#include <string.h>

#include "guarded_read.h"
#include "jit_call.h"
#include "types.h"

#define CALLS           4096    /* that are remembered */
#define CHECKED         32      /* bytes of code before and behind: other code in the same
                                   place is told by them */
#define MAX_UNROLL_RECURSION 7  /* PyPy's parameter of this name */
#define CONSTANTS       16      /* objects that a piece which only calls refers to */

static uintptr_t pythons_helper;        /* 0: not known yet */

/* The function that is run by a piece of which the table doesn't tell it: the piece refers
   to its code, in front of where it begins. */
static int64_t function_that_is_run(const struct codemap_piece *piece, uintptr_t entry)
{
    uintptr_t constants[CONSTANTS];
    size_t i, bytes = entry - piece->start;
    int64_t function, found = 0;

    if (bytes > sizeof constants ||
        !guarded_read(piece->start, constants, bytes))
        return 0;
    for (i = 0; i < bytes / sizeof *constants; i++) {
        function = types_function(constants[i]);
        if (function != 0 && found != 0 && function != found)
            return 0;
        if (function != 0)
            found = function;
    }
    return found;
}

static int64_t function_called(const struct jit_call *call)
{
    struct codemap_piece piece;
    int which[CODEMAP_DEEPEST];

    if (!codemap_find(call->callee, &piece))
        return 0;
    if (codemap_at(&piece, (int64_t)(call->callee - piece.start), which) > 0 &&
        piece.entries[which[0]].function != 0) {
        pythons_helper = call->helper;
        return piece.entries[which[0]].function;
    }
    /* loops of PyPy's own are compiled, too, such as that of list.extend() */
    return call->helper == pythons_helper ? function_that_is_run(&piece, call->callee)
                                          : 0;
}

int python_call_is_certain(void)
{
    return pythons_helper != 0;
}

struct python_call python_call_at(uintptr_t address, const struct codemap_piece *piece)
{
    static struct known {
        uintptr_t address;
        unsigned char code[2 * CHECKED];
        struct python_call call;
        int is_certain;
    } all[CALLS];
    struct known *known = &all[(address ^ address >> 10) % CALLS];
    unsigned char code[2 * CHECKED];
    struct jit_call found;

    guarded_is_mapped(address);
    if (!guarded_read(address - CHECKED, code, sizeof code))
        memset(code, 0, sizeof code);
    if (known->address == address && memcmp(known->code, code, sizeof code) == 0 &&
        known->is_certain)
        return known->call;
    memset(known, 0, sizeof *known);
    known->address = address;
    memcpy(known->code, code, sizeof code);
    known->is_certain = 1;
    if (!jit_call_returns_to(address, &found)) {
        known->call.is_helped = jit_call_helped_at(address, &found);
        if (!known->call.is_helped)
            return known->call;
    }
    known->call.function = function_called(&found);
    known->call.raises = found.raises;
    known->call.is_others = python_call_is_certain() && found.helper != pythons_helper;
    if (found.end != 0)
        known->call.end = (int64_t)(found.end - piece->start);
    known->is_certain = python_call_is_certain();
    return known->call;
}

int python_call_may_be_own(int64_t function, const struct codemap_piece *piece,
                           const int *which, int count)
{
    int i, occurs = 0;

    if (count == 0 || piece->entries[which[count - 1]].function != function)
        return 0;
    for (i = 0; i < count; i++)
        occurs += piece->entries[which[i]].function == function;
    return occurs < MAX_UNROLL_RECURSION;
}

int python_call_is_inside(const struct python_call *call,
                          const struct codemap_piece *piece, const int *which,
                          int count)
{
    if (call->function == 0 || call->end == 0 || count == 0 ||
        piece->entries[which[count - 1]].function != call->function)
        return 0;
    /* it is left when it has returned; not if it has raised an exception (inlined.h) */
    return call->raises ? python_call_may_be_own(call->function, piece, which, count)
                        : piece->entries[which[count - 1]].stop == call->end;
}
