/* Tests jit_lines.c and jit_log.c with a log.  The commands come from stdin:
 *
 *      log FROM TO             write these bytes of the file in argv[1] to the log at once
 *      at ADDRESS FUNCTION...  print the line of each function, "-" if it is unknown, or
 *                              "frame" if it is in the frame
 *      functions ADDRESS OUTERMOST BEGINS      print the functions at ADDRESS, and
 *                              "loop" if the innermost function continues in its own loop.
 *                              Without functions, print 0 or -1 (jit_lines.h)
 *      returning ADDRESS       print the function that returns at ADDRESS, and its line
 *      known                   print whether the log is valid
 *      end, begin              forget everything, and begin again
 *
 * With a second argument, PyPy's table of compiled code is as on AArch64.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "lines/jit_lines.h"
#include "lines/jit_log.h"

#define MOST    32

static int descriptor, is_whole;

int jit_table_is_whole(void)
{
    return is_whole;
}

static void put_log(const char *path, char *line)
{
    long from = strtol(line, &line, 10), to = strtol(line, NULL, 10);
    char *bytes = malloc((size_t)(to - from) + 1);
    FILE *file = fopen(path, "rb");

    CHECK(file != NULL && fseek(file, from, SEEK_SET) == 0);
    CHECK(fread(bytes, 1, (size_t)(to - from), file) == (size_t)(to - from));
    fclose(file);
    CHECK(jit_log_is(descriptor) && !jit_log_is(descriptor - 1));
    jit_log_write(bytes, (size_t)(to - from));
    free(bytes);
}

static void print_lines(char *line)
{
    int64_t functions[MOST];
    uint32_t lines[MOST];
    uintptr_t address = strtoul(line, &line, 10);
    int count = 0, i;
    char *end;

    for (;; line = end) {
        functions[count] = strtol(line, &end, 10);
        if (end == line)
            break;
        count++;
    }
    jit_lines_at(address, functions, count, lines);
    for (i = 0; i < count; i++)
        if (lines[i] == JIT_LINES_IN_FRAME)
            printf("%sframe", i > 0 ? " " : "");
        else if (lines[i] != 0)
            printf("%s%u", i > 0 ? " " : "", lines[i]);
        else
            printf("%s-", i > 0 ? " " : "");
    printf("\n");
}

static void print_functions(char *line)
{
    uintptr_t address = strtoul(line, &line, 10);
    int64_t functions[MOST], outermost = strtol(line, &line, 10);
    int begins_in = (int)strtol(line, NULL, 10), own_loop, i;
    int count = jit_lines_functions(address, outermost, begins_in, functions, MOST, &own_loop);

    for (i = 0; i < count; i++)
        printf("%s%ld", i > 0 ? " " : "", (long)functions[i]);
    if (count <= 0)
        printf("%d", count);
    printf("%s\n", count > 0 && own_loop ? " loop" : "");
}

static void print_returning(const char *address)
{
    struct jit_return is = jit_lines_returning(strtoul(address, NULL, 10));

    printf("%ld %u\n", (long)is.function, is.line);
}

int main(int argc, char **argv)
{
    static char line[1 << 16];

    CHECK(argc == 2 || argc == 3);
    is_whole = argc == 2;
    descriptor = jit_lines_begin();
    CHECK(descriptor >= 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "log ", 4) == 0)
            put_log(argv[1], line + 4);
        else if (strncmp(line, "at ", 3) == 0)
            print_lines(line + 3);
        else if (strncmp(line, "functions ", 10) == 0)
            print_functions(line + 10);
        else if (strncmp(line, "returning ", 10) == 0)
            print_returning(line + 10);
        else if (strcmp(line, "known\n") == 0)
            printf("%d\n", jit_log_is_as_known());
        else if (strcmp(line, "end\n") == 0)
            jit_lines_end();
        else if (strcmp(line, "begin\n") == 0) {
            descriptor = jit_lines_begin();
            CHECK(descriptor >= 0);
        } else
            CHECK(0);
    }
    jit_lines_end();
    return 0;
}
