#pragma once
/* The instructions and lines that interpreted functions are executing.
 *
 * vmprof's list of frames has only their code objects.  The frames themselves are on the
 * shadow stack.  Each function of the interpreter that works on a frame refers to this
 * frame, except for some functions of the JIT.  The search begins with the outermost
 * function.  The next frame with the code of the next function belongs to this function,
 * if its caller's frame is the frame of the previous function.  A function's frame comes
 * before the frames of all functions that it calls.
 *
 * For a function that calls itself, the result is certain in two cases only.  The frame of
 * the function's caller is known, or there are as many frames as calls.  The JIT may have a
 * frame that is not on the shadow stack, while the interpreter continues where compiled
 * code could not.  While compiled code runs a function, the instruction in its frame is not
 * up to date.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Indices of the fields that probe/frames.py finds. */
enum {
    FRAME_TYPE,                 /* number of the GC's type of frames; 0 if
                                   the fields are unknown */
    /* offsets in a frame; the word FRAME_TOKEN is not 0 while compiled code runs it */
    FRAME_CODE, FRAME_INSTRUCTION, FRAME_TOKEN, FRAME_CALLER,
    CODE_NUMBER, CODE_FIRST_LINE, CODE_TABLE,           /* offsets in a code object */
    REFERENCE_TYPE,             /* type number of the JIT's references to frames */
    REFERENCE_FORCED,           /* offset of the frame in such a reference; the frame
                                   may not exist yet */
    CODE_TABLE_KIND,            /* 0 for the table of Python 3.9, 1 for the table of
                                   PyPy 3.10 and later */
    STRING_START,               /* offset of the characters in an RPython string */
    STRING_LENGTH,              /* offset of the number of characters */
    FRAME_FIELDS
};
/* Set the values of these fields.  'roots' is the address of a pointer to the top of the
   shadow stack.  The word before this pointer is a pointer to the stack's beginning. */
void frame_lines_prepare(uintptr_t roots, const int fields[FRAME_FIELDS]);
/* Return whether the lines of frames can be found. */
int frame_lines_are_known(void);

/* Find the Python frames on this thread's shadow stack.  No allocation may be in
   progress.  'key' identifies the stack, and is not 0.  Returns a key that also depends on
   the present instruction of each frame. */
uint64_t frame_lines_find(uint64_t key);
/* Forget the frames that frame_lines_find() has found. */
void frame_lines_forget(void);

/* Begin the search for lines, after frame_lines_find().  The two functions below must
   then be called for each function of the stack, from the outermost to the innermost. */
void frame_lines_from_outermost(void);
/* Return the line of an interpreted function, or 0 if it is unknown.  'code' is vmprof's
   number of the function.  'calls' is the number of interpreted functions of the stack
   that have this code. */
uint32_t frame_lines_interpreted(int64_t code, int calls);
/* Pass over a function that compiled code runs.  It is the caller of the next function. */
void frame_lines_compiled(int64_t code);

#pragma GCC visibility pop
