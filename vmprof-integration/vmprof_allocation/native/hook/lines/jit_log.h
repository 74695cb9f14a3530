#pragma once
/* A reader of PyPy's log of compiled code (rpython/rlib/rjitlog), version 4.
 *
 * PyPy's module _jitlog writes the log, about 10 MB per second while a program compiles,
 * to a placeholder descriptor.  libpypy's calls of write() lead here (prepare.c).  Each
 * record is read when it is written, with the GIL, and is not stored.  A forked child
 * continues to read the records of its own JIT.
 *
 * The log has three stages of each trace.  The recorded stage is ignored.  The optimized
 * stage has merge points, which are places in the program, between the operations.  The
 * assembled stage has offsets in the machine code instead.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The kinds of operations in the optimized and the assembled stage. */
enum jit_operation {
    JIT_OTHER,
    JIT_GUARD,
    JIT_ANY_GUARD,              /* a guard that becomes some kind of guard when it is
                                   assembled */
    JIT_EXCEPTION,              /* a guard which checks that the previous call has raised */
    JIT_CALL,                   /* a call, which may run other code */
    JIT_PYTHON_CALL,            /* a call that may run Python functions */
    JIT_NEW,                    /* an allocation in the optimized stage */
    JIT_COPY,                   /* an operation that is assembled as a call */
    JIT_MALLOC,                 /* an allocation in the assembled stage */
    JIT_MALLOC_FRAME,           /* an allocation of a frame for the next call */
    JIT_CHECK_MEMORY,           /* the previous call has allocated */
    JIT_ENTER, JIT_LEAVE        /* beginning and end of an inlined function */
};

/* Properties of a guard.  If a copied guard fails, the program continues where it would
   after a failure of the previous guard that is not copied.  JIT_PERHAPS_COPIED means that
   it is uncertain whether the guard is copied. */
#define JIT_COPIED              1
#define JIT_PERHAPS_COPIED      2

/* The functions that receive the contents of the log, in the order of its records. */
struct jit_log_reader {
    /* Begin a trace.  'guard' identifies the guard at which a bridge begins, and is 0 for
       other traces.  The log also has such a number for an entry bridge, which the
       interpreter enters.  A bridge certainly begins at its guard only if patched()
       follows. */
    void (*trace)(uint64_t guard);
    /* Begin the optimized or the assembled stage. */
    void (*optimized)(void);
    void (*assembled)(void);
    /* Set the addresses of the trace's machine code. */
    void (*code)(uintptr_t start, uintptr_t end);
    /* Handle an operation with the number 'number'.  'descr' identifies a guard.  'value'
       is the function that is entered, or a property of the guard: 0 or one of the values
       above. */
    void (*operation)(enum jit_operation kind, uint32_t number, uint64_t descr,
                      int64_t value);
    /* Set the place of the previous operation in the trace's machine code, in bytes. */
    void (*offset)(uint32_t start, uint32_t size);
    /* Handle a merge point that is at this line of the program. */
    void (*line)(int64_t line);
    /* End the trace; other records follow. */
    void (*end)(void);
    /* Mark the last trace as the bridge of a guard, because its guard jumps to the trace
       now. */
    void (*patched)(void);
};

/* Begin to read the log with the functions of 'reader'.  Returns the placeholder descriptor
   on which _jitlog must be enabled.  No file has this descriptor. */
int jit_log_begin(const struct jit_log_reader *reader);
/* Return whether this process has read a header of version 4, and no invalid record.  After
   an invalid record, nothing more is read. */
int jit_log_is_as_known(void);
/* Return whether 'fd' is the placeholder descriptor. */
int jit_log_is(int fd);
/* Read whole records that libpypy writes to the placeholder descriptor. */
void jit_log_write(const void *data, size_t size);
/* Ignore all records from now on. */
void jit_log_end(void);

#pragma GCC visibility pop
