/* Drives true_stack.c with a generated stack and a table of compiled code.
 *
 *   code OFFSET HEX       put these bytes into a region of 16 pages
 *   call OFFSET CALLEE RAISES
 *                         put a call of the compiled code at CALLEE (jit_call.h) at OFFSET.
 *                         RAISES is 1 if the guards after the call expect an exception.
 *                         Prints the offsets of the return address, of the second guard,
 *                         which depends on RAISES, and of the end
 *   piece OFFSET SIZE FUNCTION START STOP NEXT ...
 *                         declare machine code of the JIT with entries (codemap.h), in
 *                         ascending order of the offsets.  NEXT counts entries.  The same
 *                         offset again replaces the entries, or with a size of 0 removes
 *                         them
 *   forget                forget the keys of stacks
 *   stack c NUMBER j OFFSET ...
 *                         frames, innermost first: an interpreted frame of this code, or
 *                         compiled code whose last call returns to the offset.  Prints the
 *                         frames: cNUMBER is interpreted, pOFFSET is compiled code, and
 *                         iNUMBER is inlined
 *   interrupted OFFSET c NUMBER j OFFSET ...
 *                         the same as "stack", if a signal interrupts the thread at OFFSET
 *   unwound OFFSET c NUMBER j OFFSET ...
 *                         the same as "interrupted", if return addresses are not on the
 *                         stack, but found by unwinding.  Unwinding ends at an offset of 0
 */
#include <inttypes.h>
#include <stdint.h>
#include <sys/mman.h>

#include "check.h"
#include "jit/codemap.h"
#include "stack_tree.h"
#include "stacks/true_stack.h"
#include "gc/types.h"

#define SIZE        (16 * 4096)
#define PIECES      64
#define ENTRIES     64
#define NODES       64
#define TABLES      128

static unsigned char *memory;
static unsigned keys;

/* PyPy's table of compiled code, in the layout of codemap.c */
static struct piece {
    uintptr_t address;
    struct {
        uint32_t size, numbers;
        const struct codemap_entry *entries;
    } *piece;
    struct piece *next[8];
} head, pieces[PIECES];
static size_t count;
static struct codemap_entry tables[TABLES][ENTRIES];
static size_t tables_count;

/* The functions that true_stack.c calls */

unsigned stack_tree_keys(void)
{
    return keys;
}

int64_t types_function(uintptr_t object)
{
    (void)object;
    return 0;
}

static struct piece *piece_at(uintptr_t address)
{
    size_t i;

    for (i = 0; i < count; i++)
        if (pieces[i].address == address)
            return &pieces[i];
    CHECK(count < PIECES && (count == 0 || pieces[count - 1].address < address));
    pieces[count].address = address;
    pieces[count].piece = calloc(1, sizeof *pieces[count].piece);
    (count == 0 ? &head : &pieces[count - 1])->next[0] = &pieces[count];
    return &pieces[count++];
}

static void add_piece(char *rest)
{
    struct piece *piece = piece_at((uintptr_t)memory +
                                   strtoul(strtok(rest, " "), NULL, 10));
    /* new memory, because the caches contain the addresses of earlier entries */
    struct codemap_entry *entries = tables[tables_count++];
    uint32_t found = 0;
    char *word;

    piece->piece->size = (uint32_t)strtoul(strtok(NULL, " "), NULL, 10);
    for (; (word = strtok(NULL, " ")) != NULL; found++) {
        CHECK(found < ENTRIES);
        entries[found].function = atol(word);
        entries[found].start = atol(strtok(NULL, " "));
        entries[found].stop = atol(strtok(NULL, " "));
        entries[found].next = 4 * atol(strtok(NULL, " "));
    }
    CHECK(tables_count < TABLES);
    piece->piece->entries = entries;
    piece->piece->numbers = 4 * found;
}

/* Print the frames of a stack.  'pc' is the interrupted address, or 0. */
static void print_stack(char *rest, uintptr_t pc, int is_unwound)
{
    uintptr_t returns[NODES + 1];
    static uintptr_t addresses[NODES][2];
    static int64_t words[TRUE_STACK_MOST];
    struct stack_node nodes[NODES];
    size_t size = 0, found = 0, i;
    char *kind;

    for (kind = strtok(rest, " "); kind != NULL; kind = strtok(NULL, " "), size++) {
        long number = atol(strtok(NULL, " "));
        CHECK(size < NODES);
        if (size > 0)
            nodes[size - 1].next = &nodes[size];
        nodes[size].next = NULL;
        nodes[size].kind = *kind == 'c' ? NODE_CODE : NODE_JITTED;
        nodes[size].value = number;
        if (*kind == 'j') {
            addresses[size][0] = is_unwound ? 7 : (uintptr_t)memory + (uintptr_t)number;
            returns[found++] = number != 0 ? (uintptr_t)memory + (uintptr_t)number : 0;
            nodes[size].value = (intptr_t)&addresses[size][1];
        }
    }
    returns[found] = 0;
    size = pc == 0 ? true_stack(nodes, words)
                   : true_stack_of_functions(nodes, pc, is_unwound ? returns : NULL, words);
    CHECK(size % 2 == 0);
    for (i = 0; i < size; i += 2)
        printf("%s%c%" PRId64, i == 0 ? "" : " ",
               words[i] == 1 ? 'c' : words[i] == 3 ? 'i' : 'p',
               words[i] == 6 ? words[i + 1] - (int64_t)(uintptr_t)memory : words[i + 1]);
    printf("\n");
}

static unsigned char *put(unsigned char *p, const char *hex)
{
    return p + from_hex(hex, p, (size_t)(memory + SIZE - p));
}

/* Put a call: mov r11, address - 16; mov [rbp+32], r11; lea r11, [r11+16]; call r11 */
static unsigned char *put_call(unsigned char *p, const unsigned char *address)
{
    uintptr_t map = (uintptr_t)address - 16;

    p = put(p, "49bb");
    memcpy(p, &map, sizeof map);
    return put(p + sizeof map, "4c895d204d8d9b1000000041ffd3");
}

static unsigned char *put_reload(unsigned char *p)
{
    return put(p, "49bb0000000000000000498b0b488b69f8"
                  "f6450400" "0f8500010000" "48c7452000000000");
}

static void put_whole_call(char *rest)
{
    unsigned char *p = memory + strtoul(strtok(rest, " "), NULL, 10), *jump, *fast;
    const unsigned char *callee = memory + strtoul(strtok(NULL, " "), NULL, 10);
    int raises = atoi(strtok(NULL, " "));
    size_t begin, between;

    p = put_call(p, callee);
    begin = (size_t)(p - memory);
    p = put(put_reload(p), "49bb00000000000000004c395810" "7400");
    jump = p - 1;
    p = put(put_reload(put_call(p, memory)), "eb00");
    fast = p;
    *jump = (unsigned char)(fast - jump - 1);
    p = put(p, "488b4048" "48837d10000f8500010000");
    between = (size_t)(p - memory);
    p = put(p, raises ? "90909090" "0f8500010000"
                      : "49bb0000000000000000" "49833b00" "0f8500010000");
    printf("%zu %zu %zu\n", begin, between, (size_t)(p - memory));
}

static void obey(char *line)
{
    char *rest = strchr(line, ' ');

    rest = rest == NULL ? line + strlen(line) : rest + 1;
    if (strncmp(line, "code ", 5) == 0) {
        size_t at = strtoul(rest, &rest, 10);
        (void)from_hex(rest + 1, memory + at, SIZE - at);
    }
    else if (strncmp(line, "call ", 5) == 0)
        put_whole_call(rest);
    else if (strncmp(line, "piece ", 6) == 0)
        add_piece(rest);
    else if (strncmp(line, "stack ", 6) == 0)
        print_stack(rest, 0, 0);
    else if (strncmp(line, "interrupted ", 12) == 0 || strncmp(line, "unwound ", 8) == 0) {
        uintptr_t pc = (uintptr_t)memory + strtoul(rest, &rest, 10);
        print_stack(rest, pc, *line == 'u');
    }
    else if (strcmp(line, "forget") == 0)
        keys++;
    else
        CHECK(0);
}

int main(void)
{
    static char line[65536];

    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    codemap_prepare((uintptr_t)&head);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        obey(line);
    }
    return 0;
}
