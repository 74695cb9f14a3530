/* Calls native_frames.c on stacks of all kinds, and prints the functions that it finds.
 * Each sample has a line.
 *
 *   frames_harness SCENARIO
 */
#include <alloca.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "native_frames.h"

#define NOINLINE    __attribute__((noinline))
#define MAX_FRAMES  6

/* Work after a call, so that the compiler does not turn the call into a jump */
static volatile int after;

static NOINLINE void sample(void);
static NOINLINE void sampler(void);
static NOINLINE void inner(void);
static NOINLINE void moves(size_t size);
static NOINLINE void recursive(int depth);
static NOINLINE void interpreted(void (*function)(int), int argument);
static NOINLINE void outer(int argument);
static NOINLINE void recurses(int argument);
static NOINLINE void generates(int argument);
void called_by_generated(void);
void generated(void);

/* a function without unwind information, like code of the JIT */
__asm__(".text\n.type generated,@function\n"
        "generated:\nsub $24, %rsp\ncall called_by_generated\n"
        "add $24, %rsp\nret\n");

int IS_VMPROF_EVAL(void *function)
{
    return function == (void *)interpreted;
}

static const char *name_of(void *function)
{
    static const struct { void *start; const char *name; } names[] = {
        { (void *)sampler, "sampler" }, { (void *)inner, "inner" },
        { (void *)moves, "moves" }, { (void *)recursive, "recursive" },
        { (void *)interpreted, "interpreted" }, { (void *)outer, "outer" },
        { (void *)recurses, "recurses" }, { (void *)generates, "generates" },
        { (void *)called_by_generated, "called_by_generated" },
    };
    size_t i;

    for (i = 0; i < sizeof names / sizeof *names; i++)
        if ((uintptr_t)function == ((uintptr_t)names[i].start | 1))
            return names[i].name;
    return "?";
}

/* Replaces vmprof_allocation_sampled(); sampler() represents the caller in the
   GC. */
static void sample(void)
{
    void *result[2 * MAX_FRAMES];
    int words = native_frames(result, MAX_FRAMES, __builtin_frame_address(0)), i;

    for (i = 0; i < words; i += 2)
        printf("%s%s", i > 0 ? " " : "",
               (intptr_t)result[i] == 7 ? name_of(result[i + 1]) : "no tag");
    printf("\n");
}

static void sampler(void) { sample(); after++; }
static void inner(void) { sampler(); after++; }

static void moves(size_t size)
{
    volatile char *room = alloca(size);

    room[size - 1] = 1;
    inner();
    after += room[size - 1];
}

static void recursive(int depth)
{
    if (depth > 1)
        recursive(depth - 1);
    else
        inner();
    after++;
}

void called_by_generated(void) { inner(); after++; }

static void interpreted(void (*function)(int), int argument)
{
    function(argument);
    after++;
}

static void outer(int argument) { moves((size_t)argument); after++; }
static void recurses(int argument) { recursive(argument); after++; }

static void generates(int argument)
{
    (void)argument;
    generated();
    after++;
}

static void *ends_in_thread(void *ignored)
{
    (void)ignored;
    inner();
    return NULL;
}

int main(int argc, char **argv)
{
    static const int sizes[] = { 16, 5000, 16 };
    const char *scenario = argc == 2 ? argv[1] : "";
    size_t i;

    if (strcmp(scenario, "depths") == 0)
        for (i = 1; i < 5; i++)
            interpreted(recurses, (int)i);
    else if (strcmp(scenario, "moves") == 0)
        for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
            interpreted(outer, sizes[i]);
    else if (strcmp(scenario, "generated") == 0)
        interpreted(generates, 0);
    else if (strcmp(scenario, "end") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, ends_in_thread, NULL);
        pthread_join(thread, NULL);
    }
    else {
        fprintf(stderr, "frames_harness: no scenario '%s'\n", scenario);
        return 2;
    }
    return 0;
}
