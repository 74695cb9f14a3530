/* Calls jit_stub.c and jit_call.c on code that the lines of stdin describe.
 *
 *   code OFFSET HEX   put these bytes into a region of 16 pages, which has no memory before
 *                     and after it
 *   back OFFSET       OFFSET is a return address in a stub; prints the offset in compiled
 *                     code at which the program continues, or "none"
 *   wild ADDRESS      the same for any return address, in hexadecimal
 *   call OFFSET       OFFSET is a return address; prints "called" if it belongs to a call
 *                     of compiled code, "helped" if it belongs to the helper after such a
 *                     call, or "none".  Also prints the offsets of the callee and of the
 *                     end (0 if unknown), the helper's address in hexadecimal, and whether
 *                     the callee has raised an exception
 *   pointer OFFSET TO put the address of the offset TO at OFFSET
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "jit_call.h"
#include "jit_stub.h"

#define PAGE    4096
#define PAGES   16

#define REQUIRE(condition) \
    do { if (!(condition)) required(#condition, __LINE__); } while (0)

static void required(const char *what, int where)
{
    fprintf(stderr, "jit_stub_harness.c:%d: not so: %s\n", where, what);
    exit(3);
}

static unsigned char *memory;

static void put(size_t offset, const char *hex)
{
    size_t i, size = strlen(hex) / 2;

    REQUIRE(offset + size <= PAGES * PAGE);
    for (i = 0; i < size; i++)
        REQUIRE(sscanf(hex + 2 * i, "%2hhx", memory + offset + i) == 1);
}

static void ask(uintptr_t address)
{
    uintptr_t back = jit_stub_back(address);

    if (back == 0)
        printf("none\n");
    else
        printf("%" PRIdPTR "\n", (intptr_t)(back - (uintptr_t)memory));
}

static void ask_for_call(uintptr_t address)
{
    struct jit_call call;
    const char *which = "called";

    if (!jit_call_returns_to(address, &call)) {
        which = "helped";
        if (!jit_call_helped_at(address, &call)) {
            printf("none\n");
            return;
        }
    }
    printf("%s,%" PRIdPTR ",%" PRIdPTR ",%" PRIxPTR ",%d\n", which,
           (intptr_t)(call.callee - (uintptr_t)memory),
           call.end == 0 ? 0 : (intptr_t)(call.end - (uintptr_t)memory), call.helper,
           call.raises);
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;

    memory = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    memory += PAGE;
    REQUIRE(mprotect(memory, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
    while (getline(&line, &size, stdin) > 0) {
        uintptr_t number, to;
        int hex = 0;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "code %" SCNuPTR " %n", &number, &hex) == 1 && hex > 0)
            put(number, line + hex);
        else if (sscanf(line, "back %" SCNuPTR, &number) == 1)
            ask((uintptr_t)memory + number);
        else if (sscanf(line, "wild %" SCNxPTR, &number) == 1)
            ask(number);
        else if (sscanf(line, "call %" SCNuPTR, &number) == 1)
            ask_for_call((uintptr_t)memory + number);
        else if (sscanf(line, "pointer %" SCNuPTR " %" SCNuPTR, &number, &to) == 2) {
            REQUIRE(number + sizeof to <= PAGES * PAGE);
            to += (uintptr_t)memory;
            memcpy(memory + number, &to, sizeof to);
        }
        else
            required("a line that is understood", __LINE__);
    }
    free(line);
    return 0;
}
