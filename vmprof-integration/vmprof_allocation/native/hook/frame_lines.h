#pragma once
/* At which instruction, and line, interpreted functions are.
 *
 * vmprof's list has their code only.  Their frames are among the GC's roots: each function
 * of the interpreter's that works on a frame refers to it.  From the outermost one on, the
 * next frame of the next function's code is that function's, as it comes up before anything
 * that it calls.  While compiled code runs a frame, its instruction is not up to date.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Where things are (probe/frames.py) */
enum {
    FRAME_TYPE,                 /* its number; 0: nothing is known */
    FRAME_CODE, FRAME_INSTRUCTION, FRAME_TOKEN,         /* offsets in a frame; */
    CODE_NUMBER, CODE_FIRST_LINE, CODE_TABLE,           /*   in its code */
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

/* Then, of each function that is interpreted, from the outermost on, the line; 0: not known.
   'code': vmprof's number. */
void frame_lines_from_outermost(void);
uint32_t frame_lines_next(int64_t code);

#pragma GCC visibility pop
