#pragma once
/* PyPy's log of what the JIT compiles (rpython/rlib/rjitlog), version 4.
 *
 * PyPy's module _jitlog writes it into a file that there is not, some 10 MB a second while a
 * program compiles: libpypy's write() leads here (prepare.c), so that each record is read when
 * it is written, with the GIL, and nothing is kept.  A forked child goes on by itself.
 *
 * Of each trace it has three stages: as it was recorded, which is passed over; optimized,
 * with the places in the program (merge points) between the operations; and assembled,
 * with offsets in the machine code instead.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum jit_operation {
    JIT_OTHER,
    JIT_GUARD,
    JIT_ANY_GUARD,              /* it becomes a guard of some kind, when assembled */
    JIT_EXCEPTION,              /* a guard that the call before has raised */
    JIT_CALL,                   /* it may run other code; ... */
    JIT_PYTHON_CALL,            /*   also that of Python functions */
    JIT_NEW,                    /* it allocates, when optimized */
    JIT_COPY,                   /* it becomes a call, when assembled */
    JIT_MALLOC,                 /* it allocates, when assembled */
    JIT_MALLOC_FRAME,           /* likewise, what the next call needs */
    JIT_CHECK_MEMORY,           /* the call before it has allocated */
    JIT_ENTER, JIT_LEAVE        /* a function that is inlined begins, and ends */
};

/* Of a guard: where it fails, the program goes on where it would behind the guard before, if
   that is no such one; or perhaps */
#define JIT_COPIED              1
#define JIT_PERHAPS_COPIED      2

/* What is told, in the order of the log */
struct jit_log_reader {
    /* A trace; 'guard': the one at which it begins, or 0: it is no bridge.  That the
       interpreter comes to it is told in the same way; patched() tells a bridge. */
    void (*trace)(uint64_t guard);
    void (*optimized)(void);
    void (*assembled)(void);
    void (*code)(uintptr_t start, uintptr_t end);
    /* 'number' is that of the operation; 'descr' tells which guard it is; 'value' is the
       function that is entered; or, of a guard, 0 or one of those above. */
    void (*operation)(enum jit_operation kind, uint32_t number, uint64_t descr,
                      int64_t value);
    /* Where the machine code of the operation before is, in that of the trace */
    void (*offset)(uint32_t start, uint32_t size);
    void (*line)(int64_t line);
    /* The trace is told: something else comes. */
    void (*end)(void);
    /* Of the trace that was told last: its guard jumps to it. */
    void (*patched)(void);
};

/* Returns the descriptor on which _jitlog is to be enabled: no file has that number. */
int jit_log_begin(const struct jit_log_reader *reader);
/* Of what was written since, in this process: it is of the version that is described above.
   Where it is not, nothing more is told. */
int jit_log_is_as_known(void);
/* What libpypy writes to that descriptor: whole records */
int jit_log_is(int fd);
void jit_log_write(const void *data, size_t size);
/* Nothing more is told, whatever PyPy writes. */
void jit_log_end(void);

#pragma GCC visibility pop
