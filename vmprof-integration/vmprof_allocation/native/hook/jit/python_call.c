#include "python_call.h"

#include "gc/types.h"
#include "machines/guarded_read.h"
#include "machines/jit_call.h"

#define MAX_UNROLL_RECURSION 7  /* PyPy's parameter of this name */
#define CONSTANTS       16      /* maximum number of constants of a piece that only lets
                                   the interpreter run a function */

static uintptr_t pythons_helper;        /* jit_call.helper of the Python interpreter; 0 if
                                           it is not known yet */

/* Return the function that a piece runs whose functions are not in the table, or 0 if it is
   unknown.  The function's code object is among the constants before 'entry', the address
   of the first instruction. */
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

/* Return vmprof's number of the function that is called, or 0 if it is unknown. */
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
    /* PyPy's own loops are compiled, too, such as the loop of list.extend() */
    return call->helper == pythons_helper ? function_that_is_run(&piece, call->callee)
                                          : 0;
}

/* Return whether the table leaves the function of 'entry' during the call. */
static int leaves(const struct python_call *call, const struct codemap_entry *entry)
{
    return entry->stop > call->begin && entry->stop <= call->end;
}

static int leaves_any(const struct python_call *call, const struct codemap_piece *piece)
{
    int i;

    for (i = 0; i < piece->count; i++)
        if (leaves(call, &piece->entries[i]) && piece->entries[i].stop < call->end)
            return 1;
    return 0;
}

int python_call_is_certain(void)
{
    return pythons_helper != 0;
}

struct python_call python_call_at(uintptr_t address, const struct codemap_piece *piece)
{
    struct python_call call = { .is_settled = 1 };
    struct jit_call found;

    guarded_is_mapped(address);
    if (!jit_call_returns_to(address, &found)) {
        call.is_helped = jit_call_helped_at(address, &found);
        if (!call.is_helped)
            return call;
    }
    call.function = function_called(&found);
    call.raises = found.raises;
    call.is_settled = python_call_is_certain();
    call.is_others = call.is_settled && found.helper != pythons_helper;
    if (found.end != 0) {
        call.begin = (int64_t)(address - piece->start);
        call.end = (int64_t)(found.end - piece->start);
        call.is_left = leaves_any(&call, piece);
    }
    return call;
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
    /* The table leaves the function when the call has returned, but perhaps not if it has
       raised (inlined.h). */
    return call->raises && !call->is_left
        ? python_call_may_be_own(call->function, piece, which, count)
        : leaves(call, &piece->entries[which[count - 1]]);
}
