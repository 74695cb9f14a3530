#pragma once
/* Where compiled code calls compiled code (the JIT's CALL_ASSEMBLER):
 *
 *          call callee                 the other code, which the JIT compiled before
 *          cmp  [rax+16], done         has it run to its end?
 *          je   fast
 *          call helper                 no: a guard of it failed.  The interpreter goes
 *          jmp  end                    on with what it has left undone
 *   fast:  mov  rax, [rax+72]          its result
 *   end:   cmp  [rbp+16], 0            two guards: is this code itself still valid,
 *          jne  ...
 *          cmp  [exception], 0         and did the callee raise an exception?
 *          jne  ...
 *
 * Of both calls, the return address tells which function is called, although, during
 * the second one, neither vmprof's stack nor its table has it.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct jit_call {
    uintptr_t callee;           /* where its code begins */
    uintptr_t helper;           /* what the second call calls: there is one for each
                                   interpreter that the JIT compiles, of which Python's is
                                   one */
    uintptr_t end;              /* behind the two guards; 0: not known */
    int raises;                 /* the second guard is another one: it makes sure that the
                                   callee has raised an exception */
};

/* Do the JIT's table of functions (codemap.h) and what follows here tell which functions
   were inlined, and called?  For AArch64, PyPy writes those alone whose loops were
   compiled, and calls are not read: its log tells more (jit_lines.h). */
int jit_table_is_whole(void);

/* Is 'address', a return address, which may be anything, of the first call?  Returns 0 if
   not, and where calls are not read. */
int jit_call_returns_to(uintptr_t address, struct jit_call *call);

/* Is 'address', which may be anything, the return address of the second call?  As
   jit_call_returns_to(). */
int jit_call_helped_at(uintptr_t address, struct jit_call *call);

#define JIT_CODE_LOOK   5       /* bytes that a call takes, with what comes behind it */

/* Does this code return?  It ends a trace that does not end with a jump to a loop. */
int jit_code_returns(const unsigned char *code, size_t bytes);

/* If a call, perhaps of compiled code, begins here: its bytes; otherwise 0. */
size_t jit_code_calls(const unsigned char code[JIT_CODE_LOOK]);

#pragma GCC visibility pop
