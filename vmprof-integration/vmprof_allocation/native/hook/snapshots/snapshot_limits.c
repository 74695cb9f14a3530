#include "snapshot_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hook.h"
#include "small_file.h"

#define MIB             (1024 * 1024)
/* memory/cgroup.py reads the same limits of cgroups, because not every process that
   reports its memory has a native library.  A test compares the two. */

/* The process of a snapshot may take up to 60 % of the heap's size.  27 % was measured for
   10 million small objects.  In addition, each page that the program writes to meanwhile is
   copied. */
#define PERCENT         60
#define ADDITIONAL      (32 * MIB)
/* Version 1 of cgroups has larger numbers for groups without a limit. */
#define NO_LIMIT        ((int64_t)1 << 62)

/* The files of a version of cgroups. */
struct group_files {
    const char *folder, *limit, *used;
};

static const struct group_files
    version_1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                  "memory.usage_in_bytes" },
    version_2 = { "/sys/fs/cgroup", "memory.max", "memory.current" };

/* Return the number in the line of 'text' that begins with 'name', or -1 if the line is
   missing. */
static int64_t number_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    const char *line;

    for (line = text; line != NULL && *line != '\0';
         line = (line = strchr(line, '\n')) == NULL ? NULL : line + 1)
        if (strncmp(line, name, length) == 0)
            return strtoll(line + length, NULL, 10);
    return -1;
}

/* Return the number in the file 'name' of a folder, or -1 if the file has none. */
static int64_t number_in(const char *folder, const char *name)
{
    char path[4096], text[64], *end;
    int64_t number;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        !small_file_read(path, text, sizeof text))
        return -1;
    number = strtoll(text, &end, 10);
    return end == text ? -1 : number;   /* "max", or no number */
}

/* Return the bytes of cached files in the cgroup.  The kernel frees them when memory is
   needed. */
static int64_t bytes_of_files(const char *folder)
{
    static const char *const names[] = { "active_file ", "inactive_file " };
    char path[4096], text[8192];
    int64_t sum = 0;
    size_t i;

    if (snprintf(path, sizeof path, "%s/memory.stat", folder) >= (int)sizeof path ||
        !small_file_read(path, text, sizeof text))
        return 0;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t bytes = number_of(text, names[i]);
        sum += bytes > 0 ? bytes : 0;
    }
    return sum;
}

/* Return the available bytes of the cgroup 'path' and of its parents, at most 'left'.
   Shortens 'path'. */
static int64_t left_in_groups(const char *root, const struct group_files *files, char *path,
                              int64_t left)
{
    for (;;) {
        char folder[4096], *last = strrchr(path, '/');
        int64_t limit, used;

        if (snprintf(folder, sizeof folder, "%s%s%s", root, files->folder, path) >=
            (int)sizeof folder)
            return left;
        limit = number_in(folder, files->limit);
        used = number_in(folder, files->used);
        if (limit >= 0 && limit < NO_LIMIT && used >= 0) {
            int64_t here = limit - used + bytes_of_files(folder);
            left = here < left ? here : left;
        }
        if (last == NULL)
            return left;
        *last = '\0';
    }
}

/* Return whether "memory" is among the controllers in the second field of a line of
   /proc/self/cgroup. */
static int has_memory(const char *controllers)
{
    size_t length = strlen("memory");

    while (*controllers != ':' && *controllers != '\0') {
        if (strncmp(controllers, "memory", length) == 0 &&
            (controllers[length] == ',' || controllers[length] == ':'))
            return 1;
        controllers += strcspn(controllers, ",:");
        controllers += *controllers == ',';
    }
    return 0;
}

/* Return the bytes of memory that this process may still get. */
static int64_t memory_left(const char *root)
{
    char path[4096], text[8192], *line, *next;
    int64_t left = INT64_MAX;

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (small_file_read(path, text, sizeof text)) {
        int64_t kib = number_of(text, "MemAvailable:");
        left = kib < 0 ? left : kib * 1024;
    }
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!small_file_read(path, text, sizeof text))
        return left;
    for (line = text; line != NULL && *line != '\0'; line = next) {
        char *controllers = strchr(line, ':'), *group;

        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL)
            continue;
        if (strncmp(line, "0:", 2) == 0)
            left = left_in_groups(root, &version_2, group + 1, left);
        else if (has_memory(controllers + 1))
            left = left_in_groups(root, &version_1, group + 1, left);
    }
    return left;
}

/* Return the number of a process's seccomp filters, or -1 if it is unknown.  It is unknown
   before Linux 5.9, and for a process outside of this container. */
static int64_t filters_of(const char *root, const char *process)
{
    char path[4096], text[8192];

    snprintf(path, sizeof path, "%s/proc/%s/status", root, process);
    return small_file_read(path, text, sizeof text) ? number_of(text, "Seccomp_filters:")
                                                    : -1;
}

/* Return whether this process has more filters of system calls than its parent.  The
   additional filters are the program's own, and may kill the process at a fork. */
static int has_own_filters(const char *root)
{
    char parent[32];
    int64_t of_parent;

    snprintf(parent, sizeof parent, "%d", (int)getppid());
    of_parent = filters_of(root, parent);
    return of_parent >= 0 && filters_of(root, "self") > of_parent;
}

/* Return whether the address space is nearly exhausted.  PyPy aborts if it gets no memory
   for the list of roots. */
static int is_address_space_short(const char *root, struct snapshot_memory *memory)
{
    char path[4096], text[128];
    struct rlimit limit;

    snprintf(path, sizeof path, "%s/proc/self/statm", root);
    if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
        !small_file_read(path, text, sizeof text))
        return 0;
    memory->needed = ADDITIONAL;
    memory->left = (int64_t)limit.rlim_cur -
                   strtoll(text, NULL, 10) * sysconf(_SC_PAGESIZE);
    return memory->left < memory->needed;
}

int snapshot_limits_refuse(const char *root, int64_t heap, struct snapshot_memory *memory)
{
    if (has_own_filters(root))
        return HOOK_FILTERED;
    if (is_address_space_short(root, memory))
        return HOOK_SHORT_OF_ADDRESSES;
    memory->needed = heap / 100 * PERCENT + ADDITIONAL;
    memory->left = memory_left(root);
    return memory->left < memory->needed ? HOOK_SHORT_OF_MEMORY : 0;
}
