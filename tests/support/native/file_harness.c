/* Tests vmprof_file.c, which finds the variable of vmprof's descriptor in the code of
   vmprof's signal handler.  The code is generated here.  Each line of stdout says whether
   the variable was found in one kind of code. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "hook.h"
#include "vmprof/vmprof_file.h"

#define PAGE            4096
#define FD              1234

/* a page of code, a page of words (one is vmprof's descriptor), and an unreadable page */
static unsigned char *library;

uintptr_t hook_base(uintptr_t inside)
{
    uintptr_t begin = (uintptr_t)library;

    return inside >= begin && inside < begin + 3 * PAGE ? begin : 0;
}

static int *word(int number)
{
    return (int *)(library + PAGE) + number;
}

#ifdef __aarch64__
#define LANDING         "\x5f\x24\x03\xd5"        /* bti c */
#define CUT_OFF         4       /* bytes of a function before the end of the code */

static void put_word(int at, uint32_t instruction)
{
    memcpy(library + at, &instruction, sizeof instruction);
}

/* Put code that loads a word: adrp x0; ldr w0, [x0, ...] */
static void put_read(int at, int number)
{
    uintptr_t to = (uintptr_t)word(number), from = (uintptr_t)library + (uintptr_t)at;
    uint32_t pages = (uint32_t)((to >> 12) - (from >> 12));

    put_word(at, 0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7ffff) << 5);
    put_word(at + 4, 0xb9400000 | (uint32_t)(to & 4095) / 4 << 10);
}

static void put_call(int at, const void *to)
{
    intptr_t distance = (const unsigned char *)to - (library + at);

    put_word(at, 0x94000000 | ((uint32_t)(distance >> 2) & 0x3ffffff));
}

/* A function that only returns the word */
static void put_getter(int at, int number)
{
    put_read(at, number);
    put_word(at + 8, 0xd65f03c0);
}
#else
#define LANDING         "\xf3\x0f\x1e\xfa"        /* endbr64 */
#define CUT_OFF         3

/* Put an instruction with an opcode of 'size' bytes, followed by the distance to 'to'. */
static void put(unsigned char *at, const char *code, int size, const void *to)
{
    int32_t offset = (int32_t)((const unsigned char *)to - (at + size));

    memcpy(at, code, (size_t)size - 4);
    memcpy(at + size - 4, &offset, sizeof offset);
}

static void put_read(int at, int number)
{
    put(library + at, "\x8b\x3d", 6, word(number));
}

static void put_call(int at, const void *to)
{
    put(library + at, "\xe8", 5, to);
}

/* A function that only returns the word */
static void put_getter(int at, int number)
{
    put(library + at, "\x8b\x05", 6, word(number));
    library[at + 6] = 0xc3;
}
#endif

static void learn(const char *what)
{
    int error = vmprof_file_learn((uintptr_t)library, FD);

    *word(1) = -1;                          /* vmprof forgets its file in a forked child */
    printf("%s %d %d\n", what, error == 0, vmprof_file_set(5) == 0 && *word(1) == 5);
    vmprof_file_take_back();
    memset(library, 0x90, PAGE);
    *word(1) = FD;
}

int main(void)
{
    library = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (library == MAP_FAILED || mprotect(library + 2 * PAGE, PAGE, PROT_NONE) < 0)
        return 1;
    memset(library, 0x90, PAGE);
    *word(1) = *word(2) = FD;
    learn("nothing");

    put_read(20, 1);
    learn("read");

    put_call(32, library + 1000);
    put_getter(1000, 1);
    learn("returned");

    put_call(32, library + 1000);           /* a PyPy whose branch targets are marked */
    memcpy(library + 1000, LANDING, 4);
    put_getter(1004, 1);
    learn("returned behind a landing");

    put_call(32, library + 1000);           /* the function begins with other bytes */
    memcpy(library + 1000, LANDING, 4);
    library[1003] ^= 1;
    put_getter(1004, 1);
    learn("returned behind something");

    put_call(20, library + 2 * PAGE - CUT_OFF);     /* this function is partly readable */
    put_call(32, library + 1000);
    put_getter(1000, 1);
    learn("returned behind what is there in part");

    put_read(20, 1);
    put_read(40, 2);
    learn("two");
    return 0;
}
