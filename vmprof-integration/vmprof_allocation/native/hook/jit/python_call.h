#pragma once
/* Calls from compiled code to other compiled code (jit_call.h), and the Python functions
   that are called. */

#include <stdint.h>

#include "codemap.h"

#pragma GCC visibility push(hidden)

/* A call of compiled code by compiled code. */
struct python_call {
    int64_t function;           /* vmprof's number of the function; 0 if this is not
                                   such a call, or if the function is unknown */
    int is_helped;              /* whether a guard of the callee has failed, so that
                                   the interpreter continues the callee */
    int raises;                 /* whether the call ends with an exception */
    int is_left;                /* whether the table leaves a function between the
                                   call and the check for an exception, as in a PyPy
                                   with pypy-branch/patches/08 */
    int is_settled;             /* whether this result stays valid as long as the
                                   code is there */
    int is_others;              /* whether the callee is compiled code of another
                                   interpreter than Python's, such as the interpreter
                                   of generators */
    int64_t begin, end;         /* offsets of the return address and of the end of
                                   the call in the caller's piece; 0 if they are
                                   unknown */
};

/* Return whether calls of Python functions can be distinguished from calls of other
   interpreters' code.  This is impossible before the first call of a function that is in
   the table. */
int python_call_is_certain(void);

/* Return the call with the return address 'address', which is in 'piece'.  If there is no
   such call, the function in the result is 0. */
struct python_call python_call_at(uintptr_t address, const struct codemap_piece *piece);

/* Return whether a raising call of 'function' may be a call of the innermost running
   function to its own loop.  'which' has the indices of the 'count' entries that run at the
   call.  If PyPy has already inlined the function as often as it permits
   (MAX_UNROLL_RECURSION), the call is a recursive call instead. */
int python_call_may_be_own(int64_t function, const struct codemap_piece *piece,
                           const int *which, int count);

/* Return whether the callee was inlined up to its loop, and the call is to this loop.  The
   innermost of the 'count' entries in 'which', which run at the call, then belongs to the
   callee.  Otherwise, a function that calls its own code calls itself recursively. */
int python_call_is_inside(const struct python_call *call,
                          const struct codemap_piece *piece, const int *which,
                          int count);

#pragma GCC visibility pop
