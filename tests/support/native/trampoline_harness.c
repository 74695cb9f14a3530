/* Hooks functions of this program with trampoline.c, and prints the results.
 *
 *   trampoline_harness [GIGABYTES]
 *
 * With an argument, it first maps this much memory: directly below the program, and
 * wherever the kernel finds other free addresses.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "patches/trampoline.h"

/* FUNCTION() makes a function that returns its argument plus a number.  Its first
   instructions can be moved whatever the compiler and its flags.  MOVED is the size in
   bytes of the first instruction, or on x86-64 of the first two. */
#ifdef __aarch64__
#define MOVED   4
#define ADD(number) "add x0, x0, #" #number "\nnop\nret\n"
#else
#define MOVED   8
#define ADD(number) "lea " #number "(%rdi), %rax\nnopl 0(%rax)\nret\n"
#endif
#define FUNCTION(name, number) \
    __asm__(".text\n.balign 16\n.globl " #name "\n" #name ":\n" ADD(number)); \
    long name(long);

FUNCTION(one, 1)
FUNCTION(ten, 10)
FUNCTION(hundred, 100)

static long detour_one(long n)
{
    return -((long (*)(long))trampoline_original(0))(n);
}

static long detour_ten(long n)
{
    return -((long (*)(long))trampoline_original(1))(n);
}

static long detour_hundred(long n)
{
    return -((long (*)(long))trampoline_original(2))(n);
}

static void call(const char *when)
{
    printf("%s: %ld %ld %ld, set %d %d %d\n", when, one(5), ten(5), hundred(5),
           trampoline_is_set(0), trampoline_is_set(1), trampoline_is_set(2));
}

static void print_protection(void)
{
    char line[4096];
    unsigned long start, end;
    char permissions[5];
    FILE *file = fopen("/proc/self/maps", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%lx-%lx %4s", &start, &end, permissions) == 3 &&
            start <= (uintptr_t)one && (uintptr_t)one < end)
            printf("pages: %s\n", permissions);
    if (file != NULL)
        fclose(file);
}

static void fill_memory(int gigabytes)
{
    const size_t size = (size_t)1 << 30;

    while (gigabytes-- > 0) {
        uintptr_t below = (uintptr_t)one & ~(uintptr_t)4095;
        uintptr_t at;
        /* try addresses downwards, to map directly below the existing mappings */
        for (at = below - size; at > size; at -= 1 << 20)
            if (mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
                     MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0) == (void *)at)
                break;
    }
}

int main(int argc, char **argv)
{
    const uintptr_t entry[TRAMPOLINES] = {
        (uintptr_t)one, (uintptr_t)ten, (uintptr_t)hundred
    };
    const int moved[TRAMPOLINES] = { MOVED, MOVED, MOVED };
    const int too_short[TRAMPOLINES] = { MOVED, MOVED - 4, MOVED };
    const int too_long[TRAMPOLINES] = { MOVED, MOVED, MOVED + 1 };
    void *const detour[TRAMPOLINES] = {
        (void *)detour_one, (void *)detour_ten, (void *)detour_hundred
    };
    unsigned char before[16], after[16];
    int error, i;

    if (argc > 1)
        fill_memory(atoi(argv[1]));
    printf("refused: %d %d\n",
           trampoline_build(entry, too_short, detour) == EINVAL,
           trampoline_build(entry, too_long, detour) == EINVAL);
    memcpy(before, (const void *)one, sizeof before);
    for (i = 0; i < 2; i++) {           /* building twice must work, as after a failure */
        error = trampoline_build(entry, moved, detour);
        if (error != 0) {
            printf("error: %s\n", strerror(error));
            return 1;
        }
    }
    call("built");
    if (trampoline_writable(1) != 0)
        return 1;
    trampoline_set(1);
    (void)trampoline_writable(0);
    call("hooked");
    print_protection();
    (void)trampoline_writable(1);
    trampoline_set(0);
    (void)trampoline_writable(0);
    call("unhooked");
    print_protection();
    memcpy(after, (const void *)one, sizeof after);
    printf("as before: %d\n", memcmp(before, after, sizeof after) == 0);
    return 0;
}
