#define _GNU_SOURCE
#include "callers.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "maps.h"

/* First number of the types of native memory; the types of objects have smaller numbers */
#define FIRST_NUMBER    ((int64_t)1 << 30)
#define MOST_RANGES     2048    /* maximum number of executable mappings; adjacent
                                   mappings of a file count once */
#define MOST_NAMES      512
#define NAME_SIZE       96
#define CODE            "JIT code"

/* The executable mappings; 'value' is the index in 'names' */
static struct maps_range ranges[MOST_RANGES];
static int ranges_count;

/* The names of the types, and whether the present profile has each name */
static char names[MOST_NAMES][NAME_SIZE];
static char is_told[MOST_NAMES];
static int names_count;

/* Return the index in 'names' of the type's name for a file, or -1 if there are too many
   names.  A name that is too long is cut. */
static int name_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash != NULL ? slash + 1 : path;
    char text[NAME_SIZE];
    int i;

    snprintf(text, sizeof text, "malloc (%.*s)", (int)(sizeof text - sizeof "malloc ()"),
             *file != '\0' ? file : CODE);
    for (i = 0; i < names_count; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    if (names_count == MOST_NAMES)
        return -1;
    strcpy(names[names_count], text);
    return names_count++;
}

static void add_mapping(const struct mapping *mapping)
{
    static const char deleted[] = " (deleted)";
    struct maps_range *last = ranges_count > 0 ? &ranges[ranges_count - 1] : NULL;
    static char path[PATH_MAX];         /* static, because the stack may be small */
    size_t length = strlen(mapping->file);
    int name;

    if (!(mapping->protection & PROT_EXEC) || length >= sizeof path)
        return;
    strcpy(path, mapping->file);
    if (length > sizeof deleted &&
        strcmp(path + length - (sizeof deleted - 1), deleted) == 0)
        path[length - (sizeof deleted - 1)] = '\0';
    name = name_of(path);
    if (last != NULL && last->end == mapping->start && last->value == name)
        last->end = mapping->end;
    else if (name >= 0 && ranges_count < MOST_RANGES)
        ranges[ranges_count++] = (struct maps_range){ mapping->start, mapping->end, name };
}

static void read_ranges(void)
{
    static char text[1 << 14];

    ranges_count = 0;
    maps_read(text, sizeof text, add_mapping);
}

static const struct maps_range *find(uintptr_t address)
{
    return maps_find(ranges, ranges_count, address);
}

int64_t callers_type(uintptr_t return_address)
{
    const struct maps_range *range = find(return_address);

    if (range == NULL) {
        int saved_errno = errno;
        read_ranges();
        errno = saved_errno;
        range = find(return_address);
    }
    return range == NULL ? 0 : FIRST_NUMBER + range->value;
}

const char *callers_untold_name(int64_t type)
{
    int64_t name = type - FIRST_NUMBER;

    if (name < 0 || is_told[name])
        return NULL;
    is_told[name] = 1;
    return names[name];
}

void callers_begin_part(void)
{
    memset(is_told, 0, sizeof is_told);
}
