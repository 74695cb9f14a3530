#define _GNU_SOURCE
#include "../jit_call.h"

#include <stddef.h>
#include <string.h>

#include "../guarded_read.h"

/* Numbers of bytes that are examined before a return address and from it on.  Measured
   distances: 79 bytes between the return addresses of the two calls (jit_call.h), and 151
   bytes from the first return address to the end of the guards. */
#define BEFORE          200
#define BEHIND          256
#define PAGE            4096
#define SHORTEST        21      /* minimum size in bytes of the instructions that called()
                                   reads */
#define SECOND_GUARD    80      /* maximum size of the second guard in bytes */
#define MOST_JUMPS      8       /* maximum number of jumps from the old to the present
                                   code of a callee */

/* Machine code, and the position of the reader in it */
struct code {
    uintptr_t address;          /* address of bytes[0] */
    size_t at;                  /* number of bytes that were read */
    unsigned char bytes[BEFORE + BEHIND];
};

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Return whether the next bytes match 'pattern', and if so, advance after them.  The
   pattern is hexadecimal, with two points for any byte. */
static int comes(struct code *code, const char *pattern)
{
    size_t i, size = strlen(pattern) / 2;

    if (code->at + size > sizeof code->bytes)
        return 0;
    for (i = 0; i < size; i++, pattern += 2)
        if (pattern[0] != '.' &&
            code->bytes[code->at + i] != 16 * digit(pattern[0]) + digit(pattern[1]))
            return 0;
    code->at += size;
    return 1;
}

/* Return the number in the last 'size' bytes that were read. */
static int64_t number(const struct code *code, size_t size)
{
    const unsigned char *p = code->bytes + code->at - size;
    int64_t word;
    int32_t half;

    if (size == 1)
        return (signed char)*p;
    if (size == 4) {
        memcpy(&half, p, sizeof half);
        return half;
    }
    memcpy(&word, p, sizeof word);
    return word;
}

/* Read an instruction that loads a constant into r11, or adds a difference to the
   constant there.  Returns 0 if the next instruction is another one. */
static int constant(struct code *code, uintptr_t *r11)
{
    if (comes(code, "49bb................"))            /* mov r11, imm64 */
        *r11 = (uintptr_t)number(code, 8);
    else if (comes(code, "4d8d9b........"))             /* lea r11, [r11+x] */
        *r11 += (uintptr_t)number(code, 4);
    else if (comes(code, "4d8d5b.."))
        *r11 += (uintptr_t)number(code, 1);
    else
        return 0;
    return 1;
}

/* Return the index in 'bytes' of the target of a jump, whose distance is in the last 'size'
   bytes that were read. */
static size_t target(const struct code *code, size_t size)
{
    return code->at + (size_t)number(code, size);
}

/* Return the address of the callee if a call of compiled code ends at bytes[behind], or 0
   if not.  Before the call, r11 has the address of a map for the GC. */
static uintptr_t called(struct code *code, size_t behind)
{
    static const size_t sizes[] = { 24, SHORTEST };     /* by the size of x */
    uintptr_t r11 = 0;
    size_t i;

    /* nearly no return address is after such a call; this test is fast */
    if (behind < SHORTEST || memcmp(code->bytes + behind - 3, "\x41\xff\xd3", 3) != 0)
        return 0;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (behind < sizes[i])
            continue;
        code->at = behind - sizes[i];
        if (comes(code, "49bb................")) {
            r11 = (uintptr_t)number(code, 8);
            if (comes(code, "4c895d20") &&              /* mov [rbp+32], r11 */
                constant(code, &r11) && comes(code, "41ffd3") &&   /* call r11 */
                code->at == behind)
                return r11;
        }
    }
    return 0;
}

/* Read the instructions after a call that reload the frame from the GC's shadow stack,
   because the frame may have moved.  Returns 0 if the next instructions are others.  Stores
   the constant that they load into r11. */
static int reloads_frame(struct code *code, uintptr_t *r11)
{
    if (!comes(code, "49bb................"))
        return 0;
    *r11 = (uintptr_t)number(code, 8);
    return comes(code, "498b0b488b69f8") &&
           comes(code, "f645....0f85........") &&       /* a write barrier */
           comes(code, "48c7452000000000");             /* mov [rbp+32], 0 */
}

/* Skip the moves that pass the callee and the frame as arguments. */
static void skip_moves(struct code *code)
{
    while (comes(code, "4889..") || comes(code, "4c89..") ||
           comes(code, "488b75..") || comes(code, "488bb5........") ||
           comes(code, "31f6") || comes(code, "be00000000"))
        ;
}

/* Read from the return address of the first call on.  Returns the index of 'fast:' (see
   jit_call.h), or 0.  Stores the function that the second call calls, and the index after
   that call. */
static size_t fast_path(struct code *code, uintptr_t *helper, size_t *second)
{
    uintptr_t r11;
    size_t fast;

    if (!reloads_frame(code, &r11) || !constant(code, &r11) ||
        !comes(code, "4c395810"))                       /* cmp [rax+16], r11 */
        return 0;
    if (comes(code, "74.."))
        fast = target(code, 1);
    else if (comes(code, "0f84........"))
        fast = target(code, 4);
    else
        return 0;
    skip_moves(code);
    if (!constant(code, &r11) || !comes(code, "4c895d20") ||
        !constant(code, &r11) || !comes(code, "41ffd3"))
        return 0;
    *helper = r11;
    *second = code->at;
    /* jmp end */
    return reloads_frame(code, &r11) && comes(code, "eb..") && code->at == fast ? fast
                                                                                : 0;
}

/* Read the first guard.  Returns 0 if the next instructions are no guard. */
static int first_guard(struct code *code, size_t fast)
{
    code->at = fast;
    if (!comes(code, "488b40.."))
        (void)comes(code, "488b80........");
    return comes(code, "48837d10000f85........");
}

/* Return the index after the first conditional jump in the SECOND_GUARD bytes from the
   index 'from' on, or 0 if these bytes have no such jump. */
static size_t next_jump(const struct code *code, size_t from)
{
    size_t i;

    for (i = from; i + 6 <= from + SECOND_GUARD && i + 6 <= sizeof code->bytes; i++)
        if (code->bytes[i] == 0x0f && (code->bytes[i + 1] & 0xf0) == 0x80)
            return i + 6;
    return 0;
}

/* Set 'end' and 'raises' of a call, from the two guards at 'fast:'. */
static void find_end(struct code *code, size_t fast, struct jit_call *call)
{
    uintptr_t r11;
    size_t second;

    call->end = 0;
    call->raises = 0;
    if (!first_guard(code, fast))
        return;
    second = code->at;
    (void)constant(code, &r11);
    if ((comes(code, "49833b00") || comes(code, "49837b..00") ||
         comes(code, "4983bb........00") || comes(code, "48833c25........00")) &&
        comes(code, "0f85........")) {
        call->end = code->address + code->at;
        return;
    }
    second = next_jump(code, second);
    if (second != 0) {
        call->end = code->address + second;
        call->raises = 1;
    }
}

/* Return the address of the present code of a callee, or 0 if it cannot be read.  If the
   JIT has compiled a function again, the old code begins with a jump. */
static uintptr_t follow_jumps(uintptr_t callee)
{
    struct code code;
    int i;

    for (i = 0; i < MOST_JUMPS; i++) {
        code.address = callee;
        code.at = sizeof code.bytes - 13;
        if (!guarded_read(callee, code.bytes + code.at, 13))
            return 0;
        if (comes(&code, "e9........"))
            callee += 5 + (uintptr_t)number(&code, 4);
        else if (comes(&code, "49bb................41ffe3"))
            memcpy(&callee, code.bytes + code.at - 11, sizeof callee);
        else
            return callee;
    }
    return 0;
}

/* Fill in 'call' if the call that returns to bytes[first] calls compiled code.  Returns the
   index of 'fast:', or 0 for other calls.  Stores the index to which the helper returns in
   'second'. */
static size_t look(struct code *code, size_t first, struct jit_call *call,
                   size_t *second)
{
    uintptr_t callee = called(code, first);
    size_t fast;

    if (callee == 0)
        return 0;
    fast = fast_path(code, &call->helper, second);
    if (fast == 0)
        return 0;
    find_end(code, fast, call);
    call->callee = follow_jumps(callee);
    return call->callee != 0 ? fast : 0;
}

/* Read BEFORE bytes before 'address' and BEHIND bytes from it on.  If some are not mapped,
   reads only those in the page of 'address'.  Returns 0 if these are not mapped, either. */
static int read_around(uintptr_t address, struct code *code)
{
    size_t before = address % PAGE < BEFORE ? address % PAGE : BEFORE;
    size_t behind = PAGE - address % PAGE < BEHIND ? PAGE - address % PAGE : BEHIND;

    code->address = address - BEFORE;
    if (guarded_read(code->address, code->bytes, sizeof code->bytes))
        return 1;
    memset(code->bytes, 0, sizeof code->bytes);
    return guarded_read(address - before, code->bytes + BEFORE - before,
                         before + behind);
}

int jit_call_returns_to(uintptr_t address, struct jit_call *call)
{
    struct code code;
    size_t second;

    return read_around(address, &code) && look(&code, BEFORE, call, &second) != 0;
}

int jit_call_helped_at(uintptr_t address, struct jit_call *call)
{
    struct code code;
    size_t first, second;

    if (!read_around(address, &code))
        return 0;
    for (first = BEFORE - 1; first >= SHORTEST; first--)
        if (look(&code, first, call, &second) != 0 && second == BEFORE)
            return 1;
    return 0;
}

int jit_code_returns(const unsigned char *code, size_t bytes)
{
    /* add rsp, imm32 or imm8; ret */
    static const unsigned char add[] = { 0x48, 0x81, 0xc4 }, add_byte[] = { 0x48, 0x83, 0xc4 };

    return (bytes >= 8 && memcmp(code, add, sizeof add) == 0 && code[7] == 0xc3) ||
           (bytes >= 5 && memcmp(code, add_byte, sizeof add_byte) == 0 && code[4] == 0xc3);
}

size_t jit_code_calls(const unsigned char code[JIT_CODE_LOOK])
{
    /* call r11; after a call of compiled code, mov r11, imm64 follows */
    static const unsigned char call_and_reload[] = { 0x41, 0xff, 0xd3, 0x49, 0xbb };

    return memcmp(code, call_and_reload, sizeof call_and_reload) == 0 ? 3 : 0;
}

int jit_table_is_whole(void)
{
    return 1;
}
