#include "true_stack.h"

#include <string.h>

#include "jit/codemap.h"
#include "jit/inlined.h"
#include "jit/python_call.h"
#include "lines/frame_lines.h"
#include "lines/jit_lines.h"
#include "machines/guarded_read.h"
#include "machines/jit_call.h"
#include "machines/jit_stub.h"
#include "stack_tree.h"

/* kinds of a pair (PROFILE.rst) */
#define INTERPRETED     1
#define INLINED         3
#define PIECE           6
#define PIECE_NOT_KNOWN 3       /* value of a PIECE whose functions are not all known */
#define LINE            8

/* The stack that is being walked, and the line of each pair.  A line is 0 if it is unknown,
   or IN_FRAME if the interpreter's frame has it. */
static int64_t *stack;
static uint32_t lines[TRUE_STACK_CUT / 2];
static size_t size;
static int with_lines;
#define IN_FRAME        ((uint32_t)JIT_LINES_IN_FRAME)
/* The result of jit_lines_returning() for the compiled code that was added last.  This code
   runs the function that is added next, whose frame is not up to date then. */
static struct jit_return returning;

/* Add a pair and its line to the stack.  A full stack stays unchanged. */
static void add_at(int64_t kind, int64_t value, uint32_t line)
{
    if (size + 2 > TRUE_STACK_CUT)
        return;
    lines[size / 2] = line;
    stack[size++] = kind;
    stack[size++] = value;
}

static void add_interpreted(int64_t function)
{
    int is_known = returning.line != 0 &&
                   (returning.function == 0 || returning.function == function);

    add_at(INTERPRETED, function, is_known ? returning.line : IN_FRAME);
    returning.line = 0;
}

static int is_in_frame(size_t at)
{
    return stack[at] == INTERPRETED || lines[at / 2] == IN_FRAME;
}

/* For each function whose line is in a frame, the number of its calls on this stack whose
   lines are in frames, too. */
static int calls[TRUE_STACK_CUT / 2];

static void count_calls(void)
{
    size_t i, j;

    for (i = 0; i < size; i += 2)
        for (calls[i / 2] = 0, j = is_in_frame(i) ? 0 : size; j < size; j += 2)
            calls[i / 2] += stack[j + 1] == stack[i + 1] && is_in_frame(j);
}

/* Find the lines of interpreted functions, beginning with the outermost. */
static void find_lines(void)
{
    size_t i;

    count_calls();
    frame_lines_from_outermost();
    for (i = size; i > 0; i -= 2) {
        uint32_t *line = &lines[i / 2 - 1];
        int is_compiled = stack[i - 2] == INLINED && *line != IN_FRAME;
        if (stack[i - 2] == INTERPRETED || *line == IN_FRAME) {
            uint32_t in_frame = frame_lines_interpreted(stack[i - 1], calls[i / 2 - 1]);
            is_compiled = *line != IN_FRAME;
            if (!is_compiled)
                *line = in_frame;
        }
        if (is_compiled)
            frame_lines_compiled(stack[i - 1]);
    }
}

/* Insert the lines into the stack.  The pair of a line precedes the pair of its
   function. */
static void put_lines(void)
{
    size_t with = size, from, i, to;

    for (i = 0; i < size / 2; i++)
        with += lines[i] != 0 ? 2 : 0;
    if (with > TRUE_STACK_MOST)
        return;
    for (from = size, to = with; from > 0; from -= 2) {
        stack[--to] = stack[from - 1];
        stack[--to] = stack[from - 2];
        if (lines[from / 2 - 1] != 0) {
            stack[--to] = lines[from / 2 - 1];
            stack[--to] = LINE;
        }
    }
    size = with;
}

/* ____________________________________________________________ */
/* return addresses in compiled code */

#define PLACES          2048    /* return addresses in the cache */
#define CHECKED         32      /* bytes of code before and after an address; they
                                   change if the JIT puts other code there */
#define FUNCTIONS       24      /* maximum number of functions of a cached address */

/* A cache entry: the functions at a return address in compiled code.  Most new stacks
   contain no new return address.  The JIT may put other code with the same bytes at the
   same address.  Therefore, an entry becomes invalid when the keys of stacks do
   (stack_tree.h). */
struct place {
    uintptr_t address;
    unsigned char code[2 * CHECKED];
    uintptr_t piece;            /* start of the piece; 0 if no compiled code is there */
    int64_t called;             /* python_call.function */
    int is_helped, is_settled;  /* as in struct python_call */
    int is_inside;              /* result of python_call_is_inside() */
    int is_outermost_only;      /* whether neither the table nor the log has the other
                                   functions */
    int was_certain;            /* python_call_is_certain() when the entry was made */
    unsigned keys;              /* stack_tree_keys() when the entry was made */
    int count;                  /* number of functions in 'few', or in 'many' if it
                                   exceeds FUNCTIONS */
    int64_t few[FUNCTIONS];     /* functions, outermost first; 0 if the table does
                                   not contain the function */
};

static struct place places[PLACES];
static int64_t many[CODEMAP_DEEPEST];

static int64_t *functions_of(struct place *place)
{
    return place->count > FUNCTIONS ? many : place->few;
}

/* Replace the functions from the table by the functions from the JIT log, if the log has
   them for certain. */
static void look_into_log(struct place *place, const struct codemap_piece *piece,
                          int64_t called)
{
    static int64_t told[CODEMAP_DEEPEST];
    int begins_in = 0, is_whole = jit_table_is_whole(), calls_own_loop, count;

    while (begins_in < piece->count && piece->entries[begins_in].start == 0)
        begins_in++;
    if (begins_in == 0)
        return;
    count = jit_lines_functions(place->address, piece->entries[0].function,
                                is_whole ? begins_in : 0, told, CODEMAP_DEEPEST,
                                &calls_own_loop);
    if (count < 0) {
        place->is_outermost_only = !is_whole;
        return;
    }
    if (!is_whole && calls_own_loop && count > 0)
        place->called = called = told[count - 1];
    place->count = count;
    memcpy(functions_of(place), told, (size_t)count * sizeof *told);
    place->is_inside = calls_own_loop && count > 0 && told[count - 1] == called;
}

/* Find the functions at a return address, and cache them in 'place'. */
static void look_at(struct place *place, uintptr_t address)
{
    int which[CODEMAP_DEEPEST], i;
    struct codemap_piece piece;
    struct python_call call;

    place->piece = 0;
    place->is_settled = place->is_outermost_only = 0;
    place->keys = stack_tree_keys();
    place->was_certain = python_call_is_certain();      /* python_call_at() may change
                                                           the result */
    if (!codemap_find(address, &piece))
        return;
    call = python_call_at(address, &piece);
    place->piece = piece.start;
    place->called = call.function;
    place->is_helped = call.is_helped;
    place->is_settled = call.is_settled;
    place->count = inlined_at(&piece, (int64_t)(address - piece.start), which);
    place->is_inside = python_call_is_inside(&call, &piece, which, place->count);
    for (i = 0; i < place->count; i++)
        functions_of(place)[i] = piece.entries[which[i]].function;
    if (jit_lines_are_on())
        look_into_log(place, &piece, call.function);
}

/* Return the functions at a return address, from the cache if its entry is still valid.
   The result is valid until the next call. */
static struct place *place_at(uintptr_t address)
{
    struct place *place = &places[(address ^ address >> 11) % PLACES];
    unsigned char code[2 * CHECKED];

    if (!guarded_read(address - CHECKED, code, sizeof code))
        memset(code, 0, sizeof code);
    if (place->address != address || !place->is_settled || place->count > FUNCTIONS ||
        place->keys != stack_tree_keys() ||
        place->was_certain != python_call_is_certain() ||
        memcmp(place->code, code, sizeof code) != 0) {
        place->address = address;
        memcpy(place->code, code, sizeof code);
        look_at(place, address);
    }
    return place;
}

/* ____________________________________________________________ */

/* Add the functions at the return address of 'place' to the stack.  'inner' is the
   outermost function of the piece that was called there: 0 if the table does not contain
   the function, or -1 if no piece was called.  Returns the outermost function of
   'place'. */
static int64_t add_place(struct place *place, int64_t inner)
{
    const int64_t *functions = functions_of(place);
    int count = place->count;
    static uint32_t of[CODEMAP_DEEPEST];

    if (place->called != 0) {
        int is_lost = place->is_helped || inner == 0;
        if (is_lost)
            add_interpreted(place->called);
        if ((is_lost || inner == place->called) && place->is_inside)
            count--;
    }
    if (place->is_outermost_only)
        add_at(PIECE, PIECE_NOT_KNOWN, 0);
    add_at(PIECE, (int64_t)place->piece, 0);
    returning.line = 0;
    if (with_lines && place->count == 0)
        returning = jit_lines_returning(place->address);
    else if (with_lines)
        jit_lines_at(place->address, functions, place->count, of);
    while (count-- > 0)
        if (functions[count] != 0)
            add_at(INLINED, functions[count], of[count]);
    return place->count > 0 ? functions[0] : 0;
}

/* Return the functions at the return address in the piece of 'node'.  The address is the
   next one in 'returns', or on the machine stack if 'returns' is NULL.  Returns NULL if the
   address is unknown. */
static struct place *next_place(const struct stack_node *node, int is_innermost,
                                const uintptr_t **returns)
{
    uintptr_t address, stub;

    if (*returns != NULL) {
        address = **returns;
        *returns += address != 0;
        return address != 0 ? place_at(address) : NULL;
    }
    address = *stack_nodes_return_address(node);
    stub = is_innermost ? jit_stub_back(address) : 0;
    return place_at(stub != 0 ? stub : address);
}

/* Add the functions of all nodes from 'node' on.  'inner' is as for add_place(). */
static void add_functions(const struct stack_node *innermost, const struct stack_node *node,
                          const uintptr_t *returns, int64_t inner)
{
    /* a full stack accepts no more frames, so the walk may end */
    for (; node != NULL && size + 2 <= TRUE_STACK_CUT; node = node->next) {
        struct place *place;
        if (node->kind != NODE_JITTED) {
            add_interpreted(node->value);
            inner = -1;
            continue;
        }
        place = next_place(node, node == innermost, &returns);
        /* without compiled code at the address, it is not the return address of a call */
        inner = place != NULL && place->piece != 0 ? add_place(place, inner) : -1;
    }
}

static void begin(int64_t *words, int are_lines_asked)
{
    stack = words;
    size = 0;
    with_lines = are_lines_asked;
    returning.line = 0;
}

size_t true_stack(const struct stack_node *innermost,
                  int64_t words[TRUE_STACK_MOST])
{
    begin(words, jit_lines_are_on());
    add_functions(innermost, innermost, NULL, -1);
    if (with_lines) {
        find_lines();
        put_lines();
    }
    return size;
}

size_t true_stack_of_functions(const struct stack_node *innermost, uintptr_t pc,
                               const uintptr_t *returns, int64_t words[TRUE_STACK_MOST])
{
    const struct stack_node *node = innermost;
    struct codemap_piece piece;
    int64_t inner = -1;

    begin(words, 0);
    if (pc != 0 && codemap_find(pc, &piece)) {
        /* place_at() expects a return address, which is after the running instruction.  At
           the end of compiled code, this address may be outside of it. */
        struct place *place = place_at(pc + 1);
        if (place->piece == piece.start)
            inner = add_place(place, -1);
        if (node != NULL && node->kind == NODE_JITTED) {
            /* The node of the interrupted piece.  For a few instructions at the ends of
               the piece, it is the caller's node, as in vmprof. */
            node = node->next;
            if (returns != NULL && *returns != 0)
                returns++;
        }
    }
    add_functions(innermost, node, returns, inner);
    return size;
}
