#define _GNU_SOURCE
#include "../jit_stub.h"

#include <string.h>

#include "../guarded_read.h"

/* The return address may have any value: it is the word below the stack pointer of a piece,
 * and the piece may have lowered the stack pointer for a call with many arguments.  So an
 * address is only followed if its memory is mapped.  A stub is recognized by two jumps: the
 * jump back at the end of the stub, and a conditional jump to the stub before the target of
 * the jump back.
 */

#define STUB_TAIL       96      /* number of bytes after the call that are examined */
#define STUB_SIZE       256     /* maximum distance from the beginning of the stub to the
                                   call */
#define BEFORE_BACK     40      /* maximum distance from the conditional jump to the target
                                   of the jump back */

static uintptr_t relative(uintptr_t next, const unsigned char *operand)
{
    int32_t distance;

    memcpy(&distance, operand, sizeof distance);
    return next + (uintptr_t)(intptr_t)distance;
}

/* Return the size of an instruction that the JIT writes between the call and the jump
   back, or 0 for other instructions.  These instructions move the result, load constants
   and spilled values, and check for an exception. */
static size_t tail_instruction(const unsigned char *p)
{
    static const struct {
        unsigned char size, length;
        unsigned char byte[4], mask[4];
    } known[] = {
        { 10, 2, { 0x49, 0xbb }, { 0xff, 0xff } },      /* mov r11, imm64 */
        { 6, 2, { 0x41, 0xbb }, { 0xff, 0xff } },       /* mov r11d, imm32 */
        { 7, 3, { 0x49, 0xc7, 0xc3 }, { 0xff, 0xff, 0xff } },
        { 4, 3, { 0x4d, 0x8d, 0x5b }, { 0xff, 0xff, 0xff } },   /* lea r11, */
        { 7, 3, { 0x4d, 0x8d, 0x9b }, { 0xff, 0xff, 0xff } },   /*  [r11+x] */
        { 3, 3, { 0x48, 0x89, 0xc0 }, { 0xf8, 0xff, 0xc0 } },   /* mov r, r */
        { 4, 3, { 0x48, 0x8b, 0x45 }, { 0xf8, 0xff, 0xc7 } },   /* mov r, */
        { 7, 3, { 0x48, 0x8b, 0x85 }, { 0xf8, 0xff, 0xc7 } },   /*  [rbp+x] */
        { 4, 4, { 0x49, 0x83, 0x3b, 0x00 }, { 0xff, 0xff, 0xff, 0xff } },
        { 5, 3, { 0x49, 0x83, 0x7b }, { 0xff, 0xff, 0xff } },   /* cmp qword */
        { 8, 3, { 0x49, 0x83, 0xbb }, { 0xff, 0xff, 0xff } },   /*  [r11+x], */
        { 9, 4, { 0x48, 0x83, 0x3c, 0x25 }, { 0xff, 0xff, 0xff, 0xff } },
        { 6, 2, { 0x0f, 0x85 }, { 0xff, 0xff } },       /* jne rel32 */
    };
    size_t i, k;

    for (i = 0; i < sizeof known / sizeof *known; i++) {
        for (k = 0; k < known[i].length; k++)
            if ((p[k] & known[i].mask[k]) != known[i].byte[k])
                break;
        if (k == known[i].length)
            return known[i].size;
    }
    return 0;
}

/* Return the target of the jump at the end of the stub that contains the return address,
   or 0. */
static uintptr_t jump_target(uintptr_t address)
{
    unsigned char tail[STUB_TAIL];
    size_t at = 0, size;

    if (!guarded_read(address, tail, sizeof tail))
        return 0;
    while (tail[at] != 0xe9) {
        size = tail_instruction(tail + at);
        at += size;
        if (size == 0 || at + 10 > sizeof tail)
            return 0;
    }
    return relative(address + at + 5, tail + at + 1);
}

/* Return whether a conditional jump before 'back' jumps to the stub that contains the
   return address 'address'. */
static int is_entered_from(uintptr_t back, uintptr_t address)
{
    unsigned char code[BEFORE_BACK];
    uintptr_t start = back - sizeof code;
    size_t i;

    if (back >= address || !guarded_read(start, code, sizeof code))
        return 0;
    /* usually the conditional jump is the last instruction before 'back' */
    for (i = sizeof code - 6 + 1; i-- > 0; )
        if (code[i] == 0x0f && (code[i + 1] & 0xf0) == 0x80 &&
            address - relative(start + i + 6, code + i + 2) <= STUB_SIZE)
            return 1;
    return 0;
}

static uintptr_t look(uintptr_t address)
{
    uintptr_t back = jump_target(address);

    if (back == 0 || !is_entered_from(back, address))
        return 0;
    guarded_is_mapped(address);
    guarded_is_mapped(back);
    return back;
}

/* The results for recent addresses.  The JIT may free code and write other code in the same
   place.  A result is then wrong, but it is used only LOOK_AGAIN times.  Most stacks are
   known (stack_nodes.h), and need no result. */
#define LOOK_AGAIN  10

static struct {
    uintptr_t address, back;
    int uses;
} answers[256];

uintptr_t jit_stub_back(uintptr_t address)
{
    size_t i = (address ^ address >> 8) % (sizeof answers / sizeof *answers);

    if (answers[i].address != address || answers[i].uses == LOOK_AGAIN) {
        answers[i].address = address;
        answers[i].back = look(address);
        answers[i].uses = 0;
    }
    answers[i].uses++;
    return answers[i].back;
}
