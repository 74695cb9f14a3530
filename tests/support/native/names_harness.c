/* Tests code_names.c with argv[1] functions.  Later profiles must get the same names as the
   first profile. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code_names.h"

static size_t name_record(char *record, int64_t number)
{
    int64_t word[2] = { number, 0 };

    word[1] = sprintf(record + 17, "py:f%lld:%d:/srv/%lld.py", (long long)number,
                      (int)(number % 100), (long long)(number / 7));
    record[0] = 2;
    memcpy(record + 1, word, sizeof word);
    return 17 + (size_t)word[1];
}

static int is_told_once(int64_t number)
{
    char expected[200];
    size_t size = name_record(expected, number), found = 0;
    const void *record = code_names_record(number, &found);

    return record != NULL && found == size && memcmp(record, expected, size) == 0 &&
           code_names_record(number, &found) == NULL;
}

static void tell(int64_t number)
{
    char record[200];

    code_names_keep(record, name_record(record, number));
}

static int is_known(int64_t number)
{
    size_t size;

    return code_names_record(number, &size) != NULL;
}

static void tell_as(int64_t number, const char *text)
{
    char record[200] = "\2";
    int64_t word[2] = { number, (int64_t)strlen(text) };

    memcpy(record + 1, word, sizeof word);
    memcpy(record + 17, text, strlen(text));
    code_names_keep(record, 17 + strlen(text));
}

/* Print the name of a function that the profile gets now, or "-" if it has the name. */
static void print_name(int64_t number)
{
    size_t size = 0;
    const char *record = code_names_record(number, &size);

    if (record == NULL)
        printf(" -");
    else
        printf(" %.*s", (int)size - 17, record + 17);
}

/* Replace an incomplete name by a name of the same or another size, in the same or another
   file, and before or after the profile has the incomplete name.  Later profiles get the
   last name. */
static void replaced_names(void)
{
    code_names_begin();
    code_names_enabled();
    tell_as(4, "py:f:1:a.py");
    tell_as(8, "py:torn:1:a.py");
    print_name(4);
    print_name(8);
    tell_as(8, "py:g:1:a.py");
    print_name(8);
    tell_as(8, "py:g:1:b.py");
    tell_as(8, "py:g:1:b.py");
    print_name(8);
    tell_as(8, "py:g:1:b.py");
    print_name(8);
    print_name(4);
    code_names_end();
    code_names_begin();
    print_name(4);
    print_name(8);
    code_names_end();
    printf("\n");
}

/* Begin and end three profiles.  vmprof names function 4 each time that it is enabled.
   Function 8 is made during the first profile, and 12 during the second.  Prints which
   functions are known in the third profile, in which vmprof names none. */
static void several_profiles(void)
{
    int64_t i;

    for (i = 0; i < 3; i++) {
        code_names_begin();
        if (i < 2)
            tell(4);
        code_names_enabled();
        if (i < 2) {
            tell(8 + 4 * i);
            tell(1001);                         /* a native name, at an odd address */
        }
        if (i == 2)
            printf("stay %d %d %d %d\n", is_known(4), is_told_once(8), is_told_once(12),
                   is_known(1001));
        code_names_end();
    }
}

int main(int argc, char **argv)
{
    /* the beginning of vmprof's file: fixed words; a header with version, flags and "pypy";
       a time; meta data */
    char head[40 + 9 + 25 + 3] = { 0 }, pair[400];
    int64_t count = argc > 1 ? atoll(argv[1]) : 0, i, good = 0;
    int64_t before = -1, after;
    const char *told;
    size_t size;

    head[40] = 5;
    head[44] = 4;
    memcpy(head + 45, "pypy", 4);
    head[49] = 6;
    head[74] = 7;
    code_names_keep("\2", 1);               /* ignored before code_names_begin() */
    code_names_begin();
    code_names_keep_head(head, 40);
    code_names_keep_head(head + 40, sizeof head - 40);
    for (i = 0; i < count; i += 2) {
        size = name_record(pair, 4 * i + 4);
        size += name_record(pair + size, 4 * i + 8);
        code_names_keep(pair, size);
        code_names_keep(pair, size - 1);    /* the same names, the second one cut off */
    }
    code_names_keep_head(head, 40);         /* ignored: names follow the head */
    told = code_names_head(&size);
    code_names_begin_next();
    memcpy(&before, head + 50, sizeof before);
    memcpy(&after, told + 50, sizeof after);
    printf("head %zu %d %d\n", size, memcmp(head, told, 50),
           memcmp(head + 66, told + 66, sizeof head - 66));
    printf("time %d\n", before == 0 && after > 1000000000);
    for (i = 0; i < count; i++)
        good += is_told_once(4 * i + 4);
    printf("told %lld\n", (long long)good);
    printf("unknown %d\n", code_names_record(3, &size) != NULL);
    code_names_begin_next();                /* as for the profile of another child */
    printf("again %d\n", count == 0 || is_told_once(4));
    code_names_end();
    printf("ended %d\n", code_names_record(4, &size) != NULL);
    several_profiles();
    printf("replaced");
    replaced_names();
    return 0;
}
