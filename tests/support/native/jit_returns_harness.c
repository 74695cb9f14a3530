/* machines/aarch64/jit_returns.c: finds where pieces of compiled code stand, which are made
 * here as the JIT makes them, and call functions whose frames are of many kinds.  A line of
 * stdout says for each of these how many pieces ran, how many return addresses were put where
 * vmprof looks, how many of them are right, and how many words were as before at the end. */
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "jit_returns.h"
#include "stack_nodes.h"

#define DEEPEST 64

typedef void function(int depth);

static struct stack_node nodes[2 * DEEPEST];
static int count;
static function *innermost_of[1];

/* A piece: the JIT's header, with a frame of 80 bytes; a call; the return.  It has no table
   of how to unwind it.  through_stub: by one of the JIT's own functions, as an allocation */
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
/* frames */

#define NOINLINE __attribute__((noinline))

static NOINLINE void go_on(int depth, void (*call)(int, function *))
{
    if (depth > 0)
        call(depth - 1, innermost_of[0]);
    else
        look("");
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

/* its frame is found by the frame pointer */
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

/* behind a return in the middle, the table has to go back to what was saved before */
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

int main(void)
{
    run("small", small);
    run("large", large);
    run("of any size", of_any_size);
    run("through stubs", through_stubs);
    run("both", early);
    return 0;
}
