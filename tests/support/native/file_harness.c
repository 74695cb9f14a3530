/* vmprof_file.c, which reads the code of a handler that is made here: each line of
   stdout says whether vmprof's descriptor was found in one. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "hook.h"
#include "vmprof_file.h"

#define PAGE            4096
#define FD              1234

/* a page of code, one of words, and one that can't be read */
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

/* An instruction of 'size' bytes at 'at', which ends with the way to 'to' */
static void put(unsigned char *at, const char *code, int size, const void *to)
{
    int32_t offset = (int32_t)((const unsigned char *)to - (at + size));

    memcpy(at, code, (size_t)size - 4);
    memcpy(at + size - 4, &offset, sizeof offset);
}

static void put_call(int at, const void *to)
{
    put(library + at, "\xe8", 5, to);
}

/* A function that returns the word, and does nothing else */
static void put_getter(int at, int number)
{
    put(library + at, "\x8b\x05", 6, word(number));
    library[at + 6] = 0xc3;
}

static void learn(const char *what)
{
    int error = vmprof_file_learn((uintptr_t)library, FD);

    *word(1) = -1;                          /* as vmprof does at a fork */
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

    put(library + 20, "\x8b\x3d", 6, word(1));
    learn("read");

    put_call(30, library + 1000);
    put_getter(1000, 1);
    learn("returned");

    put_call(30, library + 1000);           /* a PyPy with -fcf-protection */
    memcpy(library + 1000, "\xf3\x0f\x1e\xfa", 4);
    put_getter(1004, 1);
    learn("returned behind endbr64");

    put_call(30, library + 1000);           /* another function begins there */
    memcpy(library + 1000, "\xf3\x0f\x1e\xfb", 4);
    put_getter(1004, 1);
    learn("returned behind something");

    put_call(20, library + 2 * PAGE - 3);   /* of that, three bytes are there */
    put_call(30, library + 1000);
    put_getter(1000, 1);
    learn("returned behind what is there in part");

    put(library + 20, "\x8b\x3d", 6, word(1));
    put(library + 40, "\x8b\x3d", 6, word(2));
    learn("two");
    return 0;
}
