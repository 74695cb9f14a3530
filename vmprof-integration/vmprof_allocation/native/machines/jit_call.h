#pragma once
/* Calls from compiled code to compiled code (the JIT's CALL_ASSEMBLER):
 *
 *          call callee                 the other code, which the JIT compiled before
 *          cmp  [rax+16], done         has it run to its end?
 *          je   fast
 *          call helper                 no: one of its guards failed.  The interpreter
 *          jmp  end                    executes the rest
 *   fast:  mov  rax, [rax+72]          the result of the callee
 *   end:   cmp  [rbp+16], 0            two guards: is this code itself still valid,
 *          jne  ...
 *          cmp  [exception], 0         and did the callee raise an exception?
 *          jne  ...
 *
 * The return address of each of the two calls shows which function is called.  During the
 * second call, neither vmprof's stack nor the JIT's table (codemap.h) contains this
 * function.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A call from compiled code to compiled code */
struct jit_call {
    uintptr_t callee;           /* address of the first instruction of the called code */
    uintptr_t helper;           /* address of the function that the second call calls;
                                   each interpreter that the JIT compiles has its own */
    uintptr_t end;              /* address after the two guards; 0 if unknown */
    int raises;                 /* whether the second guard expects the callee to raise
                                   an exception */
};

/* Return whether the JIT's table (codemap.h) and the functions below together show all
   inlined and called functions.  This is false on AArch64.  There, PyPy writes only
   functions whose loops were compiled into the table, and calls cannot be recognized.  The
   JIT's log has more functions (jit_lines.h). */
int jit_table_is_whole(void);

/* Return whether 'address', which may have any value, is the return address of the first
   call, and fill in 'call'.  Returns 0 on processors on which calls cannot be
   recognized. */
int jit_call_returns_to(uintptr_t address, struct jit_call *call);

/* Return whether 'address', which may have any value, is the return address of the
   second call.  Otherwise like jit_call_returns_to(). */
int jit_call_helped_at(uintptr_t address, struct jit_call *call);

#define JIT_CODE_LOOK   5       /* size in bytes of a call and the beginning of the next
                                   instruction */

/* Return whether 'code', which has 'bytes' bytes, begins with the instructions by which
   compiled code returns, at the end of a trace that does not jump to a loop. */
int jit_code_returns(const unsigned char *code, size_t bytes);

/* Return the size in bytes of the instruction at the beginning of 'code' if it may be a
   call of compiled code, or 0 if not. */
size_t jit_code_calls(const unsigned char code[JIT_CODE_LOOK]);

#pragma GCC visibility pop
