#pragma once
/* Calls of one compiled Python function by another (jit_call.h): which one is called. */

#include <stdint.h>

#include "codemap.h"

#pragma GCC visibility push(hidden)

struct python_call {
    int64_t function;           /* vmprof's number of it; 0: that is no such call, or it is
                                   not known which */
    int is_helped;              /* a guard of the callee has failed: the interpreter goes
                                   on with it */
    int raises;                 /* it ends with an exception */
    int is_left;                /* the table leaves a function between the call and the
                                   check for an exception, as a PyPy does whose JIT has
                                   pypy-branch/patches/08 */
    int is_settled;             /* it need not be asked again as long as the code is there */
    int is_others;              /* what is called is compiled code, but of no Python
                                   function: another interpreter's, as of generators */
    int64_t begin, end;         /* offsets in the caller's piece: of the return address,
                                   and at which it has returned; 0: not known */
};

/* Are calls of Python's functions told from those of other interpreters' code?  Not before
   the first one of a function that the table tells. */
int python_call_is_certain(void);

/* Of this return address, which is in 'piece' */
struct python_call python_call_at(uintptr_t address, const struct codemap_piece *piece);

/* May a call of this function that raises have been made by the innermost of these entries
   itself, to its own loop?  Or does it call itself?  It was inlined before, as often as PyPy
   does that. */
int python_call_may_be_own(int64_t function, const struct codemap_piece *piece,
                           const int *which, int count);

/* Of these entries, which run there, is the innermost one the callee's?  It was inlined as
   far as its loop, which is what is called.  Or does it call itself? */
int python_call_is_inside(const struct python_call *call,
                          const struct codemap_piece *piece, const int *which,
                          int count);

#pragma GCC visibility pop
