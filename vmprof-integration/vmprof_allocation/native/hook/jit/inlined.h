#pragma once
/* The functions that run at a place of compiled code, from PyPy's table (codemap.h), with a
 * correction of an error in the table.
 *
 * A trace that enters a function may reach code that is already compiled: a loop of this
 * function, or a generator with several yields.  The trace calls this code (jit_call.h),
 * and the table leaves the function after the call.  But if the call raises an exception,
 * as at the end of a generator, the table does not leave the function.  In pyjitpl.py,
 * opimpl_jit_merge_point then skips leave_portal_frame().  Therefore, the table takes the
 * next function that ends for this one.  It leaves each outer function too late, or
 * never:
 *
 *      code                  runs        table
 *      enter f               f           f
 *      enter g               f g         f g
 *      enter a generator     f g -       f g -
 *      call it; it raises    f g         f g -
 *      leave g               f           f g
 *      leave f                           f
 *
 * A JIT with pypy-branch/patches/08 leaves the function before it checks for an
 * exception.
 *
 * So the code of each piece is searched once for calls that raise, and each of them ends
 * its function.  A bridge that begins at such a place has the error from its beginning,
 * and keeps it.
 */

#include "codemap.h"

#pragma GCC visibility push(hidden)

/* Find the functions that run at this offset of the piece.  Arguments and result are as for
   codemap_at(). */
int inlined_at(const struct codemap_piece *piece, int64_t offset,
               int which[CODEMAP_DEEPEST]);

#pragma GCC visibility pop
