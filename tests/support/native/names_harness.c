/* Asks code_names.c, as it is, of as many functions as argv[1] says: what a first
   profile is told is what another one gets. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code_names.h"
#include "profile_log.h"

static char told[1 << 20];
static size_t told_size;

void profile_log_bytes(const void *records, size_t size)
{
    if (told_size + size > sizeof told)
        abort();
    memcpy(told + told_size, records, size);
    told_size += size;
}

static size_t name_record(char *record, int64_t number)
{
    int64_t word[2] = { number, 0 };

    word[1] = sprintf(record + 17, "py:f%lld:%d:/srv/%lld.py", (long long)number,
                      (int)(number % 100), (long long)(number / 7));
    record[0] = 2;
    memcpy(record + 1, word, sizeof word);
    return 17 + (size_t)word[1];
}

/* A stack of one function, or of none */
static void tell(int64_t number, int64_t depth)
{
    char record[17 + 16];
    int64_t word[4] = { 1, depth, 1, number };

    record[0] = 1;
    memcpy(record + 1, word, sizeof word);
    code_names_tell(record, 17 + 8 * (size_t)depth);
}

static int is_told_once(int64_t number)
{
    char expected[200];
    size_t size = name_record(expected, number);
    int again;

    told_size = 0;
    tell(number, 2);
    again = told_size != size || memcmp(told, expected, size) != 0;
    told_size = 0;
    tell(number, 2);
    return !again && told_size == 0;
}

static void begin_next(void)
{
    size_t size;
    const void *head = code_names_head(&size);

    code_names_begin_next();
    profile_log_bytes(head, size);
}

int main(int argc, char **argv)
{
    /* the file's head; header: version, flags, "pypy"; a time; meta data */
    char head[40 + 9 + 25 + 3] = { 0 }, pair[400];
    int64_t count = argc > 1 ? atoll(argv[1]) : 0, i, good = 0;
    int64_t before = -1, after;
    size_t size;

    head[40] = 5;
    head[44] = 4;
    memcpy(head + 45, "pypy", 4);
    head[49] = 6;
    head[74] = 7;
    code_names_keep("\2", 1);               /* not yet */
    code_names_begin();
    code_names_keep_head(head, 40);
    code_names_keep_head(head + 40, sizeof head - 40);
    for (i = 0; i < count; i += 2) {
        size = name_record(pair, 4 * i + 4);
        size += name_record(pair + size, 4 * i + 8);
        code_names_keep(pair, size);
        code_names_keep(pair, size - 1);    /* a second time, and cut off */
    }
    code_names_keep_head(head, 40);         /* behind names there is no head */
    begin_next();
    memcpy(&before, head + 50, sizeof before);
    memcpy(&after, told + 50, sizeof after);
    printf("head %zu %d %d\n", told_size, memcmp(head, told, 50),
           memcmp(head + 66, told + 66, sizeof head - 66));
    printf("time %d\n", before == 0 && after > 1000000000);
    for (i = 0; i < count; i++)
        good += is_told_once(4 * i + 4);
    printf("told %lld\n", (long long)good);
    told_size = 0;
    tell(3, 2);
    tell(4, 0);
    printf("unknown %zu\n", told_size);
    told_size = 0;
    begin_next();                           /* another child */
    printf("again %d\n", count == 0 || is_told_once(4));
    code_names_end();
    told_size = 0;
    tell(4, 2);
    printf("ended %zu\n", told_size);
    return 0;
}
