#define _GNU_SOURCE
#include "maps.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const struct maps_range *maps_find(const struct maps_range *ranges, int count,
                                   uintptr_t address)
{
    int low = 0, high = count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].start <= address ? &ranges[low] : NULL;
}

/* Parse the line "start-end rwxp offset device inode path". */
static void add_line(const char *line, void (*add)(const struct mapping *))
{
    char *at;
    struct mapping found = { .file = "" };
    const char *path;

    found.start = strtoul(line, &at, 16);
    found.end = strtoul(at + 1, &at, 16);
    if (strlen(at) < 5)
        return;
    found.protection = (at[1] == 'r' ? PROT_READ : 0) | (at[2] == 'w' ? PROT_WRITE : 0) |
                       (at[3] == 'x' ? PROT_EXEC : 0);
    path = strchr(at, '/');
    if (path != NULL)
        found.file = path;
    add(&found);
}

void maps_read(char *text, size_t size, void (*add)(const struct mapping *mapping))
{
    size_t used = 0;
    ssize_t got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    while (fd >= 0 && (got = read(fd, text + used, size - 1 - used)) > 0) {
        char *line = text, *end;
        used += (size_t)got;
        text[used] = '\0';
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            add_line(line, add);
            line = end + 1;
        }
        used -= (size_t)(line - text);
        memmove(text, line, used);
    }
    if (fd >= 0)
        close(fd);
}
