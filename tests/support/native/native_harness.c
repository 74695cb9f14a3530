/* Calls native_stack.c, native_names.c and elf_symbols.c on stacks and files of all kinds,
 * and prints the results.
 *
 *   native_harness SCENARIO [FILE [BUILD-ID]]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "code_names.h"
#include "stacks/elf_symbols.h"
#include "stacks/native_names.h"
#include "stacks/native_stack.h"
#include "profile_log.h"

/* functions that dladdr() can find */
#define FUNCTION    __attribute__((noinline, visibility("default")))

/* Work after a call, so that the compiler does not turn the call into a jump */
static volatile int after;
static uintptr_t limit = UINTPTR_MAX;
static size_t most = NATIVE_FRAMES;

FUNCTION void inner(void);
FUNCTION void recursive(int depth);
FUNCTION int compare(const void *a, const void *b);
FUNCTION void sorts(void);
FUNCTION void called_by_generated(void);
FUNCTION void generates(void);
FUNCTION void evaluate(int depth);
FUNCTION void dispatch(int depth);
FUNCTION void called_one_way(int depth);
FUNCTION void called_another_way(int depth);
FUNCTION void at_the_bottom(int depth);
FUNCTION void builtin_function(void);
void generated(void);

/* a function without unwind information, like code of the JIT */
__asm__(".text\n.type generated,@function\n"
        "generated:\nsub $24, %rsp\ncall called_by_generated\n"
        "add $24, %rsp\nret\n");

static const char *name_of(uintptr_t function)
{
    Dl_info info;

    return dladdr((void *)function, &info) == 0 || info.dli_sname == NULL ||
                   info.dli_saddr != (void *)function
               ? "?" : info.dli_sname;
}

static void print_walk(void)
{
    uintptr_t functions[NATIVE_FRAMES];
    size_t count = native_stack_walk(functions, most, limit), i;
    int is_inside = 0;

    /* inner() and its callers; the frames before belong to this harness */
    for (i = 0; i < count; i++) {
        is_inside |= functions[i] == (uintptr_t)inner;
        if (is_inside)
            printf("%s ", name_of(functions[i]));
    }
    printf("\n");
}

void inner(void) { print_walk(); after++; }

void recursive(int depth)
{
    if (depth > 1)
        recursive(depth - 1);
    else
        inner();
    after++;
}

int compare(const void *a, const void *b)
{
    if (after++ == 0)
        inner();
    return *(const int *)a - *(const int *)b;
}

void sorts(void)
{
    int numbers[] = { 2, 1 };

    after = 0;
    qsort(numbers, 2, sizeof *numbers, compare);
    after++;
}

void called_by_generated(void) { inner(); after++; }
void generates(void) { generated(); after++; }

/* ____________________________________________________________ */
/* An interpreter: evaluate() runs a function, and dispatch() its instructions */

void evaluate(int depth) { dispatch(depth); after++; }

void dispatch(int depth)
{
    if (depth == 0)
        at_the_bottom(depth);
    else if (depth % 2 == 0)
        called_one_way(depth - 1);
    else
        called_another_way(depth - 1);
    after++;
}

void called_one_way(int depth) { evaluate(depth); after++; }
void called_another_way(int depth) { evaluate(depth); after++; }

void at_the_bottom(int depth)
{
    printf("%d ", native_stack_learn());
    builtin_function();
    after += depth;
}

void builtin_function(void) { inner(); after++; }

/* ____________________________________________________________ */
/* The functions of the profile */

static void print_record(const char *how, const char *record, size_t size)
{
    const size_t head = 1 + 2 * sizeof(int64_t);
    int64_t word[2];

    memcpy(word, record + 1, sizeof word);
    if (*record != 2 || size != head + (size_t)word[1])
        abort();
    /* a record has the address of a function, or the address plus 1 */
    printf("%s %s%s %.*s\n", how,
           *name_of((uintptr_t)word[0]) == '?' ? "" : name_of((uintptr_t)word[0]),
           *name_of((uintptr_t)word[0] - 1) == '?' ? "" : name_of((uintptr_t)word[0] - 1),
           (int)word[1], record + head);
}

void profile_log_bytes(const void *records, size_t size)
{
    print_record("written", records, size);
}

void code_names_keep(const char *records, size_t size)
{
    print_record("kept", records, size);
}

static void tell_names(void)
{
    /* functions without exported names, as in a stripped library */
    const uintptr_t functions[] = { (uintptr_t)inner, (uintptr_t)recursive,
                                    (uintptr_t)inner };

    if (native_names_begin() != 0)
        abort();
    native_names_tell(functions, 3);
    native_names_finish();
    native_names_finish();
    native_names_begin_next();
    native_names_tell(functions, 3);
    native_names_end();
    native_names_tell(functions, 3);
    native_names_finish();
}

static void print_symbol(uintptr_t value, const char *name, void *argument)
{
    (void)argument;
    printf("%lx %zu\n", (unsigned long)value, strlen(name));
}

/* ____________________________________________________________ */

static volatile int is_ending;

static void *loads(void *path)
{
    while (!is_ending) {
        void *handle = dlopen(path, RTLD_NOW);
        if (handle == NULL)
            abort();
        dlclose(handle);
    }
    return NULL;
}

/* Walk stacks while another thread loads and unloads a library.  A child does so, too,
   which may have been forked in the middle of a load. */
static void walk_beside_loader(char *path)
{
    uintptr_t functions[NATIVE_FRAMES];
    size_t expected = native_stack_walk(functions, NATIVE_FRAMES, UINTPTR_MAX);
    pthread_t thread;
    pid_t child = 1;
    int i, status = 1;

    if (pthread_create(&thread, NULL, loads, path) != 0)
        abort();
    for (i = 0; i < 20000; i++) {
        if (i == 10000)
            child = fork();
        if (native_stack_walk(functions, NATIVE_FRAMES, UINTPTR_MAX) != expected)
            abort();
    }
    if (child == 0)
        _exit(0);
    is_ending = 1;
    pthread_join(thread, NULL);
    if (waitpid(child, &status, 0) != child || status != 0)
        abort();
    printf("as ever\n");
}

int main(int argc, char **argv)
{
    const char *scenario = argc > 1 ? argv[1] : "";
    struct build_id id = { .size = 0 };

    if (strcmp(scenario, "symbols") == 0) {
        const char *digits = argc > 3 ? argv[3] : "";
        unsigned int byte;
        for (; id.size < BUILD_ID_MOST && sscanf(digits, "%2x", &byte) == 1; digits += 2)
            id.bytes[id.size++] = (unsigned char)byte;
        elf_symbols_read(argv[2], &id, print_symbol, NULL);
        return 0;
    }
    if (native_stack_open(NULL) != 0) {
        fprintf(stderr, "native_harness: no unwinder\n");
        return 3;
    }
    if (strcmp(scenario, "depths") == 0) {
        recursive(1);
        recursive(3);
    }
    else if (strcmp(scenario, "most") == 0) {
        most = 5;
        recursive(50);
    }
    else if (strcmp(scenario, "limit") == 0) {
        /* a limit in this frame, which excludes main() and its callers */
        limit = (uintptr_t)__builtin_frame_address(0);
        recursive(2);
        limit = 1;
        recursive(2);
    }
    else if (strcmp(scenario, "library") == 0)
        sorts();
    else if (strcmp(scenario, "generated") == 0)
        generates();
    else if (strcmp(scenario, "own") == 0 &&
             native_stack_open((const void *)(uintptr_t)main) == 0) {
        uintptr_t functions[NATIVE_FRAMES];
        struct native_library library;
        size_t count = native_stack_walk(functions, NATIVE_FRAMES, UINTPTR_MAX);
        while (count-- > 0)
            if (native_stack_library(functions[count], &library) &&
                *library.path == '\0')
                abort();
        printf("none of its own\n");
    }
    else if (strcmp(scenario, "learn") == 0) {
        evaluate(3);                    /* too few frames to learn from */
        evaluate(60);
        evaluate(3);
    }
    else if (strcmp(scenario, "names") == 0)
        tell_names();
    else if (strcmp(scenario, "loader") == 0)
        walk_beside_loader(argv[2]);
    else {
        fprintf(stderr, "native_harness: no scenario '%s'\n", scenario);
        return 2;
    }
    return 0;
}
