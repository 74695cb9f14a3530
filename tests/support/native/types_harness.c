/* Drives types.c with a heap that the lines of stdin describe:
 *
 *     table ID WORD...             set an entry of the type table, of 64 bytes
 *     text HEX                     call types_prepare() with this text
 *     word AT VALUE                set a word of the heap; "@AT" is an address in the heap
 *     bytes AT HEX                 set bytes of the heap
 *     begin, minor, major          begin a profile; a minor or major collection
 *     number AT, size AT           print the number of the type, or the size, of the object
 *     known                        print the result of types_known()
 *
 * For each new name of a type, "number" first prints "name NUMBER
 * KIND GCS HEX".
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gc/nursery.h"
#include "recorder.h"
#include "gc/types.h"

#define HEAP    (1 << 22)
#define TABLE   (1 << 20)
#define LINE    (1 << 22)

struct nursery nursery;

static char *heap;
static char table[TABLE] __attribute__((aligned(8)));

void recorder_type(int64_t number, enum type_name kind, int64_t gcs,
                   const char *name, size_t size)
{
    size_t i;

    printf("name %" PRId64 " %d %" PRId64 " ", number, (int)kind, gcs);
    for (i = 0; i < size; i++)
        printf("%02x", (unsigned char)name[i]);
    printf("\n");
}

static size_t from_hex(const char *hex, char *to)
{
    size_t size = 0;
    unsigned int byte;

    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        to[size++] = (char)byte;
    return size;
}

static uint64_t value(const char *word)
{
    return *word == '@' ? (uint64_t)(uintptr_t)heap + strtoull(word + 1, NULL, 0)
                        : strtoull(word, NULL, 0);
}

static void set_entry(char *rest)
{
    char *word = strtok(rest, " ");
    char *at = table + strtoul(word, NULL, 0);
    uint64_t number;

    while ((word = strtok(NULL, " ")) != NULL) {
        number = value(word);
        memcpy(at, &number, sizeof number);
        at += sizeof number;
    }
}

static void prepare(const char *hex)
{
    static char *text;
    struct hook_place place = {
        .type_info = (uintptr_t)table, .type_fixed_size = 16,
        .type_item_size = 32, .type_info_bits = 0, .type_is_varsize = 0x10000,
        .type_length = 48, .flag_visited = (uint64_t)1 << 34,
    };
    size_t size;

    free(text);
    text = malloc(strlen(hex) / 2 + 1);
    size = from_hex(hex, text);
    types_prepare(&place, size == 0 ? NULL : text, size);
}

static uintptr_t object_at(const char *offset)
{
    return (uintptr_t)heap + strtoul(offset, NULL, 0);
}

static int64_t old_size(uintptr_t object)
{
    return types_old_size(types_of(object), object);
}

static void obey(char *line)
{
    char *rest = strchr(line, ' ');
    uint64_t number;
    char *word;

    rest = rest == NULL ? line + strlen(line) : rest + 1;
    if (strncmp(line, "table ", 6) == 0)
        set_entry(rest);
    else if (strncmp(line, "text", 4) == 0)
        prepare(rest);
    else if (strncmp(line, "word ", 5) == 0) {
        word = strchr(rest, ' ') + 1;
        number = value(word);
        memcpy(heap + strtoul(rest, NULL, 0), &number, sizeof number);
    }
    else if (strncmp(line, "bytes ", 6) == 0)
        (void)from_hex(strchr(rest, ' ') + 1, heap + strtoul(rest, NULL, 0));
    else if (strcmp(line, "begin") == 0)
        types_begin();
    else if (strcmp(line, "minor") == 0)
        nursery.collections++;
    else if (strcmp(line, "major") == 0)
        types_major_collection();
    else if (strncmp(line, "number ", 7) == 0) {
        errno = 77;
        printf("%" PRId64 "\n", types_number(types_of(object_at(rest)),
                                             object_at(rest)));
        if (errno != 77)
            abort();
    }
    else if (strncmp(line, "size ", 5) == 0)
        printf("%" PRId64 "\n", types_young_size(old_size(object_at(rest))));
    else if (strncmp(line, "old ", 4) == 0)
        printf("%" PRId64 "\n", old_size(object_at(rest)));
    else if (strcmp(line, "known") == 0)
        printf("%d\n", types_are_known());
    else
        abort();
}

int main(void)
{
    char *line = malloc(LINE);

    heap = calloc(1, HEAP);
    if (line == NULL || heap == NULL)
        return 1;
    while (fgets(line, LINE, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        obey(line);
    }
    prepare("");
    free(line);
    free(heap);
    return 0;
}
