#include "../jit_returns.h"

#include <stddef.h>

#include "unwind.h"

/* The frame of a piece, S being what vmprof's node of it holds:
 *
 *      S + 80      its caller's frame
 *      S           x30 and x29 of its caller, and vmprof's node, among others
 *      S - 16      x30, if the piece has called one of the JIT's own stubs, such as
 *                  malloc_slowpath; below that, or here, the frame of what is called
 *
 * vmprof looks at S - 8.
 */
#define PIECE_FRAME     80
#define STUB_FRAME      16
#define MOST_PIECES     4096

static struct found {
    uintptr_t *place;           /* where vmprof looks */
    uintptr_t returns, before;
} found[MOST_PIECES];
static size_t count;

static uintptr_t word(uintptr_t address)
{
    return *(const uintptr_t *)address;
}

/* Is there a call in front of this return address?  bl or blr */
static int is_behind_call(uintptr_t address)
{
    uint32_t call;

    if (address % 4 != 0 || address < 4096)
        return 0;
    call = *(const uint32_t *)(address - 4);
    return (call & 0xfc000000) == 0x94000000 || (call & 0xfffffc1f) == 0xd63f0000;
}

/* Unwind from 'frame' to the piece with this stack pointer.  Returns its return address;
   0: the way there is not known. */
static uintptr_t unwind_to(struct unwound *frame, uintptr_t sp)
{
    while (frame->sp < sp && unwind_step(frame, sp))
        ;
    if (frame->sp == sp)
        return frame->pc;
    /* (it is the piece that the stub was called from) */
    return frame->sp == sp - STUB_FRAME ? word(sp - STUB_FRAME) : 0;
}

void jit_returns_begin(const struct stack_node *innermost)
{
    struct unwound frame;
    size_t i;

    /* that of the caller: the ABI has x29 lead to what it was there, where a function has
       a frame pointer, as this one has for that reason */
    frame.pc = (uintptr_t)__builtin_return_address(0);
    frame.sp = (uintptr_t)__builtin_dwarf_cfa();
    frame.fp = word((uintptr_t)__builtin_frame_address(0));
    count = 0;
    for (; innermost != NULL && count < MOST_PIECES; innermost = innermost->next) {
        uintptr_t sp = (uintptr_t)innermost->value, returns;
        if (innermost->kind != NODE_JITTED)
            continue;
        returns = unwind_to(&frame, sp);
        if (!is_behind_call(returns))
            break;              /* of those further out, nothing is known, either */
        found[count].place = stack_nodes_return_address(innermost);
        found[count].before = *found[count].place;
        found[count++].returns = returns;
        frame.pc = word(sp);
        frame.fp = word(sp + sizeof sp);
        frame.sp = sp + PIECE_FRAME;
    }
    for (i = 0; i < count; i++)
        *found[i].place = found[i].returns;
}

void jit_returns_end(void)
{
    while (count > 0) {
        count--;
        *found[count].place = found[count].before;
    }
}

int jit_returns_are_there(void)
{
    return 0;
}
