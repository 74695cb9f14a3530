#define _GNU_SOURCE
#include "../jit_call.h"

#include <stddef.h>
#include <string.h>

#include "../guarded_read.h"

/* Bytes that are looked at, before the return address and from there on.  Measured: the
   return addresses of the two calls are 79 bytes apart, and the end is 151 bytes behind
   the first one. */
#define BEFORE          200
#define BEHIND          256
#define PAGE            4096
#define SHORTEST        21      /* bytes of a call */
#define SECOND_GUARD    80      /* bytes of the second guard, at most */
#define MOST_JUMPS      8       /* from where a callee began to where it begins now */

struct code {
    uintptr_t address;          /* of bytes[0] */
    size_t at;                  /* what was read so far */
    unsigned char bytes[BEFORE + BEHIND];
};

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Do the bytes that come next agree with 'pattern'?  It is hexadecimal, with two points
   for any byte.  If so, the code is read as far as behind them. */
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

/* The last number that was read, which has so many bytes */
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

/* The JIT keeps constants in r11: it loads one, or adds a difference to the one before.
   Returns 0 if no such instruction comes. */
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

/* The target of a jump whose distance was read last */
static size_t target(const struct code *code, size_t size)
{
    return code->at + (size_t)number(code, size);
}

/* Is the place at bytes[behind] the one behind a call of compiled code?  The address of
   a map for the GC is in r11 before.  Returns what is called, or 0. */
static uintptr_t called(struct code *code, size_t behind)
{
    static const size_t sizes[] = { 24, SHORTEST };     /* by the size of x */
    uintptr_t r11 = 0;
    size_t i;

    /* nearly no place is behind a call, and this tells it at once */
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

/* Behind each call, the frame may be elsewhere: the GC's stack of roots has it. */
static int reloads_frame(struct code *code, uintptr_t *r11)
{
    if (!comes(code, "49bb................"))
        return 0;
    *r11 = (uintptr_t)number(code, 8);
    return comes(code, "498b0b488b69f8") &&
           comes(code, "f645....0f85........") &&       /* a write barrier */
           comes(code, "48c7452000000000");             /* mov [rbp+32], 0 */
}

/* What was called, and the frame of the function, become arguments. */
static void skip_moves(struct code *code)
{
    while (comes(code, "4889..") || comes(code, "4c89..") ||
           comes(code, "488b75..") || comes(code, "488bb5........") ||
           comes(code, "31f6") || comes(code, "be00000000"))
        ;
}

/* From where the first call returns on.  Returns the place of 'fast:', or 0; sets what the
   second call calls, and the place behind that. */
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

/* Reads the first guard.  Returns 0 if there is none. */
static int first_guard(struct code *code, size_t fast)
{
    code->at = fast;
    if (!comes(code, "488b40.."))
        (void)comes(code, "488b80........");
    return comes(code, "48837d10000f85........");
}

/* The place behind the next conditional jump, or 0 */
static size_t next_jump(const struct code *code, size_t from)
{
    size_t i;

    for (i = from; i + 6 <= from + SECOND_GUARD && i + 6 <= sizeof code->bytes; i++)
        if (code->bytes[i] == 0x0f && (code->bytes[i + 1] & 0xf0) == 0x80)
            return i + 6;
    return 0;
}

/* Sets the place behind the two guards. */
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

/* Where the JIT has compiled a function anew, the old code begins with a jump. */
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

/* Does the call that returns to bytes[first] call compiled code?  If so, returns the place
   of 'fast:', and sets the one to which the helper returns; otherwise 0. */
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

/* Of what is around 'address', read what is there: all, or what is in its own page. */
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
    /* call r11; and behind a call of compiled code: mov r11, imm64 */
    static const unsigned char call_and_reload[] = { 0x41, 0xff, 0xd3, 0x49, 0xbb };

    return memcmp(code, call_and_reload, sizeof call_and_reload) == 0 ? 3 : 0;
}

int jit_table_is_whole(void)
{
    return 1;
}
