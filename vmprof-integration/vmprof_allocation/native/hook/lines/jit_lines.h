#pragma once
/* The lines that the functions at a place of compiled code are executing.
 *
 * PyPy's table of compiled code (codemap.h) has only functions.  PyPy's JIT log
 * (jit_log.h) has more.  For each compiled trace, it contains the lines between the
 * optimized operations, and the offsets of the assembled operations in the machine code.
 * The JIT rewrites operations when it assembles a trace.  The two lists are matched like
 * this:
 *
 *      optimized               assembled       matched as
 *      line 7
 *      enter f; line 2
 *      new_with_vtable         malloc          the n-th one between two guards, if both
 *      leave f; line 8                         lists have the same operations in the
 *      call_r                  call_r          same order
 *      guard_no_exception      guard           the n-th guard
 *
 * A bridge begins with the functions and lines of its guard.  An operation without a match
 * has no line.
 *
 * A function that is inlined may be left in favour of its loop, which is compiled
 * already.  The trace calls the loop, and the loop also runs the rest of the function.
 * The function's frame has the line (frame_lines.h).  The log has no line between such a
 * call and the end of the function, which returns the result of the call.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Begin to read the log.  Returns the placeholder descriptor on which the caller must
   enable _jitlog, or -errno. */
int jit_lines_begin(void);
/* Return whether the log is being read. */
int jit_lines_are_on(void);
/* Stop reading, and give the memory back. */
void jit_lines_end(void);

/* Find the functions that run at 'address', if the log has them for certain.  Stores up
 * to 'most' functions, outermost first.  Returns their number, 0 if all functions have
 * ended, or -1 if the functions are not certain.
 *
 * From PyPy's table come 'outermost', the number of the outermost function, and
 * 'begins_in', the count of functions in which the code begins.  'begins_in' is 0 on
 * machines where the table lacks it.  Other functions in the table may be wrong.  A
 * bridge gets the functions of its guard, not the functions at the place where the
 * program continues if the guard fails.  '*calls_own_loop' becomes 1 if the innermost
 * function has called its own loop at 'address', otherwise 0.
 */
int jit_lines_functions(uintptr_t address, int64_t outermost, int begins_in,
                        int64_t *functions, int most, int *calls_own_loop);

/* Store the lines of the functions that run at 'address', outermost first, in 'lines'.  A
   line is 0 if it is unknown, or JIT_LINES_IN_FRAME if the function's frame has it. */
#define JIT_LINES_IN_FRAME      INT32_MAX

void jit_lines_at(uintptr_t address, const int64_t *functions, int count, uint32_t *lines);

/* The function that returns at an address of compiled code, and the line of its return.  A
 * function may allocate its result last, when the table has already left the function.
 *
 * 'function' is the number of the outermost function, or 0 for the function in which the
 * trace begins.  'line' is 0 if no function returns at the address.
 */
struct jit_return {
    int64_t function;
    uint32_t line;
};
/* Return the function that returns at this return address. */
struct jit_return jit_lines_returning(uintptr_t address);

#pragma GCC visibility pop
