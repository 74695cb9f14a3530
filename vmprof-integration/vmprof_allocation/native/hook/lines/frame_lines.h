#pragma once
/* At which instruction, and line, interpreted functions are.
 *
 * vmprof's list has their code only.  Their frames are among the GC's roots: each function
 * of the interpreter's that works on a frame refers to it, but for some of the JIT's.  From
 * the outermost one on, the next frame of the next function's code is that function's, as it
 * comes up before anything that it calls, if its caller's frame is that of the function
 * before.  Of a function that calls itself, that is certain only if the frame of its caller is
 * known, or if there are as many frames as calls: the JIT may have one, which is no root, while
 * the interpreter goes on where compiled code could not.  While compiled code runs a frame,
 * its instruction is not up to date.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Where things are (probe/frames.py) */
enum {
    FRAME_TYPE,                 /* its number; 0: nothing is known */
    FRAME_CODE, FRAME_INSTRUCTION, FRAME_TOKEN, FRAME_CALLER,   /* offsets in a frame; */
    CODE_NUMBER, CODE_FIRST_LINE, CODE_TABLE,           /*   in its code */
    REFERENCE_TYPE,             /* of the JIT's references to frames, its number; and */
    REFERENCE_FORCED,           /*   where the frame is, if it was made */
    CODE_TABLE_KIND,            /* 0: as of Python 3.9, 1: as of PyPy's 3.10 and later */
    STRING_START,               /* of RPython's: where its characters begin, behind their */
    STRING_LENGTH,              /*   number */
    FRAME_FIELDS
};
/* 'roots': a pointer to the end of the stack of roots, behind one to its beginning */
void frame_lines_prepare(uintptr_t roots, const int fields[FRAME_FIELDS]);
int frame_lines_are_known(void);

/* Find this thread's frames, between two allocations.  What stands for the stack is 'key',
   not 0: returns what stands for it with the instructions. */
uint64_t frame_lines_find(uint64_t key);
void frame_lines_forget(void);

/* Then, of each function, from the outermost on: 'code' is vmprof's number.  Of one that is
   interpreted, returns the line; 0: it is not known.  'calls': so many functions of the stack
   have this code, and are interpreted. */
void frame_lines_from_outermost(void);
uint32_t frame_lines_interpreted(int64_t code, int calls);
void frame_lines_compiled(int64_t code);

#pragma GCC visibility pop
