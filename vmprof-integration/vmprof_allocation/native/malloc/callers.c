#define _GNU_SOURCE
#include "callers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Types of objects, which the GC numbers, are fewer. */
#define FIRST_NUMBER    ((int64_t)1 << 30)
#define MOST_RANGES     2048    /* executable mappings, next to each other: one */
#define MOST_NAMES      512
#define NAME_SIZE       96
#define CODE            "JIT code"

static struct range {
    uintptr_t start, end;
    int name;
} ranges[MOST_RANGES];
static int ranges_count;

static char names[MOST_NAMES][NAME_SIZE];
static char is_told[MOST_NAMES];
static int names_count;

/* Of a file; what is too long loses its end.  Returns its number, or -1. */
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

/* A line of /proc/self/maps: start-end rwxp offset device inode path */
static void add_line(char *line)
{
    static const char deleted[] = " (deleted)";
    struct range *last = ranges_count > 0 ? &ranges[ranges_count - 1] : NULL;
    char *at, *path;
    uintptr_t start = strtoul(line, &at, 16), end = strtoul(at + 1, &at, 16);
    size_t length;
    int name;

    if (strlen(at) < 5 || at[3] != 'x')
        return;
    path = strchr(at, '/');
    if (path == NULL)
        path = at + strlen(at);         /* nobody's file */
    length = strlen(path);
    if (length > sizeof deleted && strcmp(path + length - (sizeof deleted - 1),
                                          deleted) == 0)
        path[length - (sizeof deleted - 1)] = '\0';
    name = name_of(path);
    if (last != NULL && last->end == start && last->name == name)
        last->end = end;
    else if (name >= 0 && ranges_count < MOST_RANGES)
        ranges[ranges_count++] = (struct range){ start, end, name };
}

static void read_ranges(void)
{
    static char text[1 << 14];
    size_t used = 0;
    ssize_t got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    ranges_count = 0;
    while (fd >= 0 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        char *line = text, *end;
        used += (size_t)got;
        text[used] = '\0';
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            add_line(line);
            line = end + 1;
        }
        used -= (size_t)(line - text);
        memmove(text, line, used);
    }
    if (fd >= 0)
        close(fd);
}

static const struct range *find(uintptr_t address)
{
    int low = 0, high = ranges_count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ranges_count && ranges[low].start <= address ? &ranges[low] : NULL;
}

int64_t callers_type(uintptr_t return_address)
{
    const struct range *range = find(return_address);

    if (range == NULL) {
        int saved_errno = errno;
        read_ranges();
        errno = saved_errno;
        range = find(return_address);
    }
    return range == NULL ? 0 : FIRST_NUMBER + range->name;
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
