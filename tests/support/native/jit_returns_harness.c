/* Tests machines/aarch64/jit_returns.c, which finds the return addresses of compiled code.
 * The code is generated here as the JIT does it, and calls functions with frames of many
 * kinds.  Each kind has a line of stdout with four numbers: calls of compiled code; return
 * addresses that were put where vmprof reads them; right addresses; and words that were
 * unchanged at the end.  A signal interrupts the last kinds.  The signal's handler gets the
 * return addresses, which are not put anywhere. */
#include <alloca.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "jit_returns.h"
#include "stack_nodes.h"

#define DEEPEST 64

typedef void function(int depth);

static struct stack_node nodes[2 * DEEPEST];
static int count;
static function *innermost_of[1];
static void (*interrupted_in)(void);

/* A part of compiled code: the JIT's header, with a frame of 80 bytes; a call; the return.
   It has no unwind table.  piece_through_stub() calls through one of the JIT's own
   functions, as an allocation does. */
void piece(int depth, function *f);
void piece_through_stub(int depth, function *f);
void note(int depth, uintptr_t sp);

extern const char piece_returns[], stub_returns[];

__asm__(".text\n.balign 16\n"
        ".globl piece\n"
        "piece:  stp x30, x29, [sp, #-80]!\n"
        "        stp x0, x1, [sp, #64]\n"
        "        mov x1, sp\n"
        "        bl note\n"
        "        ldp x0, x1, [sp, #64]\n"
        "        mov x29, #1\n"                         /* no frame pointer */
        "        blr x1\n"
        ".globl piece_returns\n"
        "piece_returns:\n"
        "        ldp x30, x29, [sp], #80\n"
        "        ret\n"
        ".globl piece_through_stub\n"
        "piece_through_stub:\n"
        "        stp x30, x29, [sp, #-80]!\n"
        "        stp x0, x1, [sp, #64]\n"
        "        mov x1, sp\n"
        "        bl note\n"
        "        ldp x0, x1, [sp, #64]\n"
        "        mov x29, #1\n"
        "        bl stub\n"
        ".globl stub_returns\n"
        "stub_returns:\n"
        "        ldp x30, x29, [sp], #80\n"
        "        ret\n"
        "stub:   sub sp, sp, #16\n"
        "        str x30, [sp]\n"
        "        blr x1\n"
        "        ldr x30, [sp]\n"
        "        add sp, sp, #16\n"
        "        ret\n");

static void push(intptr_t kind, intptr_t value)
{
    nodes[count].next = count > 0 ? &nodes[count - 1] : NULL;
    nodes[count].kind = kind;
    nodes[count++].value = value;
}

void note(int depth, uintptr_t sp)
{
    push(NODE_CODE, depth);
    push(NODE_JITTED, (intptr_t)sp);
}

static void look(const char *what)
{
    uintptr_t before[2 * DEEPEST];
    int i, pieces = 0, put = 0, right = 0, same = 0;

    for (i = 0; i < count; i++)
        if (nodes[i].kind == NODE_JITTED)
            before[i] = *stack_nodes_return_address(&nodes[i]);
    jit_returns_begin(&nodes[count - 1]);
    for (i = 0; i < count; i++)
        if (nodes[i].kind == NODE_JITTED) {
            uintptr_t found = *stack_nodes_return_address(&nodes[i]);
            pieces++;
            put += found != before[i];
            right += found == (uintptr_t)piece_returns || found == (uintptr_t)stub_returns;
        }
    jit_returns_end();
    for (i = 0; i < count; i++)
        if (nodes[i].kind == NODE_JITTED)
            same += before[i] == *stack_nodes_return_address(&nodes[i]);
    printf("%s: %d pieces, %d put, %d right, %d as before\n", what, pieces, put, right, same);
}

/* ____________________________________________________________ */
/* Frames */

#define NOINLINE __attribute__((noinline))

static NOINLINE void go_on(int depth, void (*call)(int, function *))
{
    if (depth > 0)
        call(depth - 1, innermost_of[0]);
    else
        interrupted_in != NULL ? interrupted_in() : look("");
    __asm__ volatile("");               /* no tail call */
}

static NOINLINE void small(int depth)
{
    go_on(depth, piece);
    __asm__ volatile("");
}

static NOINLINE void large(int depth)
{
    volatile char room[5000];

    memset((void *)room, depth, sizeof room);
    go_on(depth, piece);
    __asm__ volatile("" : : "r"(room));
}

/* A function whose frame has no fixed size, so it is found through the frame pointer */
static NOINLINE void of_any_size(int depth)
{
    volatile char *room = alloca((size_t)(depth * 100 + 16));

    memset((void *)room, depth, 16);
    go_on(depth, piece);
    __asm__ volatile("" : : "r"(room));
}

static NOINLINE void through_stubs(int depth)
{
    go_on(depth, piece_through_stub);
    __asm__ volatile("");
}

/* A function with a return in the middle: after it, the unwind table must restore the rules
   that were valid before it */
static NOINLINE void early(int depth)
{
    if (depth > 100)
        return;
    go_on(depth, depth % 2 ? piece : piece_through_stub);
    __asm__ volatile("");
}

static void run(const char *what, function *f)
{
    count = 0;
    innermost_of[0] = f;
    printf("%s", what);
    piece(9, f);
}

/* ____________________________________________________________ */
/* Code that a signal interrupts; 'udf' is an undefined instruction */

void without_frame(void), with_signature(void), with_small_frame(void), in_stub(void),
    in_stub_with_frame(void), in_function_of_stub(void), in_piece(void), for_the_gil(void);

#define FUNCTION(name, code) \
    ".globl " name "\n.type " name ", %function\n" name ": .cfi_startproc\n" code \
    ".cfi_endproc\n.size " name ", . - " name "\n"
#define PIECE(name, code) \
    ".globl " name "\n" name ": stp x30, x29, [sp, #-80]!\n" \
    "mov x0, #0\nmov x1, sp\nbl note\nmov x29, #1\n" code "ldp x30, x29, [sp], #80\nret\n"

__asm__(FUNCTION("without_frame", "udf #0\nret\n")
        FUNCTION("with_signature", "paciasp\n.cfi_negate_ra_state\nudf #0\nautiasp\n"
                 ".cfi_negate_ra_state\nret\n")
        FUNCTION("with_small_frame", "stp x29, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n"
                 ".cfi_offset 29, -16\n.cfi_offset 30, -8\nmov x30, #1\nudf #0\n"
                 "ldp x29, x30, [sp], #16\n.cfi_restore 30\n.cfi_restore 29\n"
                 ".cfi_def_cfa_offset 0\nret\n")
        PIECE("in_piece", "mov x30, #12\nudf #0\n")
        PIECE("in_stub", "bl stub_at_once\n.globl at_once_returns\nat_once_returns:\n")
        PIECE("in_stub_with_frame", "bl stub_later\n.globl later_returns\nlater_returns:\n")
        PIECE("in_function_of_stub", "bl stub_calls\n.globl calls_returns\ncalls_returns:\n")
        /* the code has saved a result on the stack, below its frame */
        PIECE("for_the_gil", "fmov d0, #1.0\nsub sp, sp, #16\nstr d0, [sp]\n"
              "bl with_small_frame\n.globl gil_returns\ngil_returns:\n"
              "add sp, sp, #16\n")
        "stub_at_once: udf #0\nret\n"
        "stub_later: sub sp, sp, #16\nstr x30, [sp]\nmov x30, #1\nudf #0\nldr x30, [sp]\n"
        "add sp, sp, #16\nret\n"
        "stub_calls: sub sp, sp, #16\nstr x30, [sp]\nbl without_frame\nldr x30, [sp]\n"
        "add sp, sp, #16\nret\n");

extern const char at_once_returns[], later_returns[], calls_returns[], gil_returns[];

static int is_right(uintptr_t address)
{
    return address == (uintptr_t)piece_returns || address == (uintptr_t)stub_returns ||
           address == (uintptr_t)at_once_returns || address == (uintptr_t)later_returns ||
           address == (uintptr_t)calls_returns || address == (uintptr_t)gil_returns;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;
    uintptr_t before[2 * DEEPEST], pc;
    const uintptr_t *returns;
    int i, pieces = 0, right = 0, same = 0, at = 0;

    (void)number;
    (void)info;
    for (i = 0; i < count; i++)
        if (nodes[i].kind == NODE_JITTED)
            before[i] = *stack_nodes_return_address(&nodes[i]);
    returns = jit_returns_interrupted(&nodes[count - 1], interrupted, &pc);
    for (i = count - 1; i >= 0; i--)
        if (nodes[i].kind == NODE_JITTED) {
            pieces++;
            same += before[i] == *stack_nodes_return_address(&nodes[i]);
            if (returns[at] == 0)
                continue;
            /* code that is itself interrupted has an interrupted address, no return address
               */
            right += is_right(returns[at]) || (interrupted_in == in_piece && at == 0);
            at++;
        }
    printf(": %d pieces, %d put, %d right, %d as before\n", pieces, 0, right, same);
    if (pc != interrupted->uc_mcontext.pc || returns[at] != 0)
        printf("wrong\n");
    interrupted->uc_mcontext.pc += 4;
}

static void run_interrupted(const char *what, void (*in)(void))
{
    interrupted_in = in;
    run(what, large);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

    run("small", small);
    run("large", large);
    run("of any size", of_any_size);
    run("through stubs", through_stubs);
    run("both", early);
    sigaction(SIGILL, &action, NULL);
    run_interrupted("without a frame", without_frame);
    run_interrupted("with a signature", with_signature);
    run_interrupted("with a small frame", with_small_frame);
    run_interrupted("in the piece", in_piece);
    run_interrupted("in a stub", in_stub);
    run_interrupted("in a stub with a frame", in_stub_with_frame);
    run_interrupted("in a stub's function", in_function_of_stub);
    run_interrupted("while it waits for the GIL", for_the_gil);
    return 0;
}
