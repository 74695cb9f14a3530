#pragma once
/* Which functions run at a place of a piece of the JIT's code: what PyPy's table (codemap.h)
 * says, without an error that PyPy makes in it.
 *
 * A trace that enters a function may come to code that is compiled already: a loop of that
 * function, or a generator that yields in several places.  It calls this code (jit_call.h)
 * and the function is left behind the call; but not if the call raises an exception, as a
 * generator does at its end (pyjitpl.py, opimpl_jit_merge_point: leave_portal_frame() is
 * passed over).  The next function that is left then counts as this one, and each of those
 * around it is left too late, or never:
 *
 *      code                  runs        the table says
 *      enter f               f           f
 *      enter g               f g         f g
 *      enter a generator     f g -       f g -
 *      call it; it raises    f g         f g -
 *      leave g               f           f g
 *      leave f                           f
 *
 * (A JIT with pypy-branch/patches/08 leaves it before it looks whether the call raised.)
 * So calls that raise are looked for in the code of a piece, once, and end the function that
 * made them.  Pieces that begin at such a place (bridges) have the error from their beginning,
 * and keep it.
 */

#include "codemap.h"

#pragma GCC visibility push(hidden)

/* As codemap_at(). */
int inlined_at(const struct codemap_piece *piece, int64_t offset,
               int which[CODEMAP_DEEPEST]);

#pragma GCC visibility pop
