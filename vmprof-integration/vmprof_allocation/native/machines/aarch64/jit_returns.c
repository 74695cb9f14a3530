#define _GNU_SOURCE
#include "../jit_returns.h"

#include <errno.h>
#include <stddef.h>

#include "../guarded_read.h"
#include "unwind.h"

/* The frame of a piece of compiled code.  S is the value of its node in vmprof's list:
 *
 *      S + 80      the frame of the piece's caller
 *      S           x30 and x29 of the piece's caller, and vmprof's node, among others
 *      S - 16      x30, if the piece has called one of the JIT's own stubs, such as
 *                  malloc_slowpath; below that, or here, the frame of the called function
 *
 * vmprof reads the return address at S - 8.
 */
#define PIECE_FRAME     80
#define STUB_FRAME      16
#define MOST_PIECES     512     /* vmprof's samples have at most 512 pieces */

static struct user {
    struct unwind_rules rules;
    uintptr_t *places[MOST_PIECES];             /* addresses from which vmprof reads ... */
    uintptr_t before[MOST_PIECES];              /* ... and the words that were there */
    uintptr_t returns[MOST_PIECES + 1];         /* return addresses, then 0 */
    size_t count;
} of_thread, of_signal;                         /* of threads with the GIL, and of signal
                                                   handlers */

static uintptr_t word(uintptr_t address)
{
    return *(const uintptr_t *)address;
}

/* Return whether the instruction before this address, which may have any value, is a
   call: bl or blr. */
static int is_behind_call(uintptr_t address)
{
    uint32_t call;

    if (address % sizeof call != 0 ||
        !guarded_read(address - sizeof call, &call, sizeof call))
        return 0;
    return (call & 0xfc000000) == 0x94000000 || (call & 0xfffffc1f) == 0xd63f0000;
}

/* Unwind from 'frame' to the piece whose stack pointer is 'sp'.  Returns the return address
   in this piece, or 0 if the unwinding cannot pass a frame before the piece. */
static uintptr_t unwind_to(struct user *user, struct unwound *frame, uintptr_t sp)
{
    uintptr_t found = 0;

    while (frame->sp < sp && unwind_step(&user->rules, frame, sp))
        ;
    if (frame->sp == sp)
        /* The function in which the unwinding began may have no frame, or may be the piece
           itself. */
        found = frame->is_interrupted ? unwind_without_signature(frame->lr) : frame->pc;
    else if (frame->sp == sp - STUB_FRAME)
        /* the piece has called a stub, which has saved the return address in the piece */
        found = word(sp - STUB_FRAME);
    if (is_behind_call(found))
        return found;
    /* No return address was found, so the program counter itself is used.  It may be in the
       piece, which has moved the stack pointer for arguments, or for a result that it keeps
       while it waits for the GIL.  Or it is in a function outside of all pieces that has no
       unwind table. */
    return frame->sp <= sp && (frame->is_interrupted || is_behind_call(frame->pc))
               ? frame->pc : 0;
}

/* Find the return addresses of the pieces in the list 'innermost', by unwinding from
   'frame', and store them in 'user'. */
static void find(struct user *user, const struct stack_node *innermost,
                 struct unwound *frame)
{
    size_t nodes;

    user->count = 0;
    for (nodes = 0; innermost != NULL && nodes < MOST_PIECES;
         nodes++, innermost = innermost->next) {
        uintptr_t sp = (uintptr_t)innermost->value, returns;
        if (innermost->kind != NODE_JITTED)
            continue;
        returns = unwind_to(user, frame, sp);
        if (returns == 0)
            break;              /* the list does not belong to this stack */
        user->places[user->count] = stack_nodes_return_address(innermost);
        user->returns[user->count++] = returns;
        frame->pc = word(sp);
        frame->fp = word(sp + sizeof sp);
        frame->sp = sp + PIECE_FRAME;
        frame->is_interrupted = 0;
    }
    user->returns[user->count] = 0;
}

int jit_returns_are_in_place(void)
{
    return 0;
}

void jit_returns_begin(const struct stack_node *innermost)
{
    struct user *user = &of_thread;
    struct unwound frame;
    int saved_errno;
    size_t i;

    /* The frame of the caller.  __builtin_frame_address() gives this function a frame
       pointer, and by the ABI, a frame pointer points to the x29 of the caller. */
    frame.pc = (uintptr_t)__builtin_return_address(0);
    frame.sp = (uintptr_t)__builtin_dwarf_cfa();
    frame.fp = word((uintptr_t)__builtin_frame_address(0));
    frame.lr = 0;
    frame.is_interrupted = 0;
    /* reading an invalid address sets errno */
    saved_errno = errno;
    find(user, innermost, &frame);
    errno = saved_errno;
    for (i = 0; i < user->count; i++) {
        user->before[i] = *user->places[i];
        *user->places[i] = user->returns[i];
    }
}

void jit_returns_end(void)
{
    struct user *user = &of_thread;

    while (user->count > 0) {
        user->count--;
        *user->places[user->count] = user->before[user->count];
    }
}

const uintptr_t *jit_returns_interrupted(const struct stack_node *innermost,
                                         const ucontext_t *context, uintptr_t *pc)
{
    struct user *user = &of_signal;
    struct unwound frame = {
        .pc = context->uc_mcontext.pc, .sp = context->uc_mcontext.sp,
        .fp = context->uc_mcontext.regs[29], .lr = context->uc_mcontext.regs[30],
        .is_interrupted = 1
    };

    *pc = frame.pc;
    find(user, innermost, &frame);
    return user->returns;
}

int jit_returns_are_free(void)
{
    return unwind_is_free();
}
