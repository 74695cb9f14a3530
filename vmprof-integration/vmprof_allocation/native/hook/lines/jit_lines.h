#pragma once
/* Which line of its source each function is at, at a place of the JIT's code.
 *
 * PyPy's table of that code (codemap.h) has functions only.  But PyPy's log (jit_log.h) tells
 * of each trace, when it is compiled, the lines between its operations; and where these are in
 * the machine code, though that is told of other operations, into which these were rewritten:
 *
 *      optimized                       assembled
 *      line 7
 *      enter f; line 2                                 how it is told
 *      new_with_vtable                 malloc          of the n-th between two guards, if
 *      leave f; line 8                                 there are as many in both, and in the
 *      call_r                          call_r          same order
 *      guard_no_exception              guard           the n-th guard is the n-th
 *
 * A bridge begins where its guard is.  What does not fit has no line.
 *
 * A function that is inlined may be left to its own loop, which is called, and runs the rest of
 * the function, too, behind the loop: its frame knows where that is (frame_lines.h).  No line
 * comes between such a call and the function's end, at which it returns what the call did.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Begin; returns the descriptor on which _jitlog is to be enabled, or -errno. */
int jit_lines_begin(void);
int jit_lines_are_on(void);
void jit_lines_end(void);

/* Which functions run at 'address', from the outermost on, 'most' at most, if the log tells it
   for certain: returns how many; 0: all of them are left; -1: it is not certain.  PyPy's table
   says which the outermost one is, and in how many the code begins, or 0 where it doesn't;
   others it may have wrong, as a bridge gets those of its guard, and not those of where the
   program goes on if that fails.  'calls_own_loop': the innermost one goes on in a loop that is called. */
int jit_lines_functions(uintptr_t address, int64_t outermost, int begins_in,
                        int64_t *functions, int most, int *calls_own_loop);

/* Fill in the lines of these functions, which run at 'address', from the outermost one on; a
   line that is not known is 0, and one that the frame knows is this: */
#define JIT_LINES_IN_FRAME      INT32_MAX

void jit_lines_at(uintptr_t address, const int64_t *functions, int count, uint32_t *lines);

/* What a function returns may be allocated last, when the table has left it.  If the outermost
   one is left at 'address': its number, 0 if it is the one that the trace begins in; and the
   line of its return, or 0. */
struct jit_return {
    int64_t function;
    uint32_t line;
};
struct jit_return jit_lines_returning(uintptr_t address);

#pragma GCC visibility pop
