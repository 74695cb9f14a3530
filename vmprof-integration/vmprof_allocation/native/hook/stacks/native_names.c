#define _GNU_SOURCE
#include "native_names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "code_names.h"
#include "elf_symbols.h"
#include "native_stack.h"
#include "profile_log.h"

#define MARKER_NAME     '\x02'
#define RECORD_HEAD     (1 + 2 * sizeof(int64_t))

#define MOST_FUNCTIONS  32768   /* later functions get no name */
#define SLOTS           (2 * MOST_FUNCTIONS)
#define MOST_LIBRARIES  512
#define MOST_PATHS      ((size_t)1 << 17)       /* bytes of all paths */
#define MOST_NAME       1024    /* bytes of a name that are written */
#define MOST_PATH       4096    /* bytes of a path that are written */

/* A function of a native frame, and its library's index. */
struct function {
    uintptr_t address;
    uint16_t library;
    unsigned char is_told;              /* whether this profile has a name of the
                                           function */
    unsigned char is_final;             /* whether the symbol is known, or no file has
                                           one */
};

/* A library, with its absolute path if this is known. */
struct library {
    uintptr_t base;
    const char *path;
    struct build_id id;
};

/* All functions and libraries of the run, or NULL if native frames are off. */
static struct names {
    uint32_t functions_count, libraries_count;
    size_t paths_size;
    uint16_t slots[SLOTS];              /* index of a function plus 1, hashed by its
                                           address */
    struct function functions[MOST_FUNCTIONS];
    struct library libraries[MOST_LIBRARIES];
    char paths[MOST_PATHS];
} *names;

int native_names_begin(void)
{
    void *map;

    native_names_end();
    map = mmap(NULL, sizeof *names, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return errno;
    names = map;
    return 0;
}

void native_names_end(void)
{
    if (names != NULL)
        munmap(names, sizeof *names);
    names = NULL;
}

/* ____________________________________________________________ */
/* functions and libraries */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

/* Store the absolute path of a library, because the program may change its working
   directory.  Returns NULL if there is no room. */
static const char *keep_path(const char *path)
{
    char *p = names->paths + names->paths_size;
    size_t room = MOST_PATHS - names->paths_size, used = 0;
    ssize_t size;

    if (*path == '\0') {                /* the program's executable */
        size = room > 0 ? readlink("/proc/self/exe", p, room - 1) : -1;
        used = size < 0 ? 0 : (size_t)size;
    }
    else if (*path != '/' && strchr(path, '/') != NULL &&
             getcwd(p, room) != NULL) {
        used = strlen(p);
        if (used + 1 < room)
            p[used++] = '/';
    }
    if (used + strlen(path) + 1 > room)
        return NULL;
    strcpy(p + used, path);
    names->paths_size += used + strlen(path) + 1;
    return p;
}

/* Return the index of the library that contains a function, or -1 if it is unknown or there
   is no room. */
static int library_of(uintptr_t function)
{
    struct native_library found;
    struct library *library;
    uint32_t i;

    if (!native_stack_library(function, &found))
        return -1;
    for (i = 0; i < names->libraries_count; i++) {
        library = &names->libraries[i];
        if (library->base == found.base &&      /* the linker has no path for the
                                                   executable */
            (*found.path == '\0' ||
             strcmp(last_part(library->path), last_part(found.path)) == 0))
            return (int)i;
    }
    if (i == MOST_LIBRARIES)
        return -1;
    library = &names->libraries[i];
    library->path = keep_path(found.path);
    if (library->path == NULL)
        return -1;
    library->base = found.base;
    elf_symbols_id_in_memory(found.start, found.end, found.base, &library->id);
    names->libraries_count++;
    return (int)i;
}

/* Return the slot of the function at 'address'.  The slot is empty if the function is
   unknown. */
static uint16_t *slot_of(uintptr_t address)
{
    uint64_t hash = (uint64_t)address * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(hash >> 32) % SLOTS;

    while (names->slots[i] != 0 &&
           names->functions[names->slots[i] - 1].address != address)
        i = (i + 1) % SLOTS;
    return &names->slots[i];
}

/* Return the function at 'address', which is added if it is unknown.  Returns NULL if there
   is no room. */
static struct function *function_at(uintptr_t address)
{
    uint16_t *slot = slot_of(address);
    struct function *function;
    int library;

    if (*slot != 0)
        return &names->functions[*slot - 1];
    if (names->functions_count == MOST_FUNCTIONS)
        return NULL;
    library = library_of(address);
    if (library < 0)
        return NULL;
    function = &names->functions[names->functions_count];
    function->address = address;
    function->library = (uint16_t)library;
    *slot = (uint16_t)++names->functions_count;
    return function;
}

/* ____________________________________________________________ */
/* names of functions */

/* Give a function the name 'text', as a record in vmprof's format for native code.  If
   'keep' is true, the record is stored for later profiles.  If 'write' is true, it is
   written into the present profile. */
static void name(const struct function *function, const char *text, int keep,
                 int write)
{
    static char record[RECORD_HEAD + MOST_NAME + MOST_PATH];
    char *p = record + RECORD_HEAD;
    int64_t word[2];
    int size = snprintf(p, sizeof record - RECORD_HEAD, "n:%.*s:0:%.*s",
                        MOST_NAME - 8, text, MOST_PATH - 1,
                        names->libraries[function->library].path);

    word[0] = (int64_t)native_names_number(function->address);
    word[1] = size;
    record[0] = MARKER_NAME;
    memcpy(record + 1, word, sizeof word);
    if (keep)
        code_names_keep(record, RECORD_HEAD + (size_t)size);
    if (write)
        profile_log_bytes(record, RECORD_HEAD + (size_t)size);
}

/* Name a function by its library and its offset there. */
static void name_by_offset(const struct function *function, int keep, int write)
{
    const struct library *library = &names->libraries[function->library];
    char text[MOST_NAME];

    (void)snprintf(text, sizeof text, "%.*s+0x%lx", MOST_NAME - 32,
                   last_part(library->path),
                   (unsigned long)(function->address - library->base));
    name(function, text, keep, write);
}

void native_names_tell(const uintptr_t *functions, size_t count)
{
    struct function *function;
    size_t i;

    for (i = 0; names != NULL && i < count; i++) {
        function = function_at(functions[i]);
        if (function == NULL || function->is_told)
            continue;
        function->is_told = 1;
        if (!function->is_final)        /* otherwise, code_names.h has written the name */
            name_by_offset(function, 0, 1);
    }
}

/* Name a function by its symbol, if the function was sampled. */
static void take_symbol(uintptr_t value, const char *text, void *argument)
{
    const struct library *library = argument;
    uint16_t *slot = slot_of(library->base + value);
    struct function *function;

    if (*slot == 0)
        return;
    function = &names->functions[*slot - 1];
    if (function->is_final || &names->libraries[function->library] != library)
        return;
    function->is_final = 1;
    name(function, text, 1, 1);
}

/* Return whether a function of the library has no symbol yet. */
static int wants_names(uint32_t library)
{
    uint32_t i;

    for (i = 0; i < names->functions_count; i++)
        if (names->functions[i].library == library && !names->functions[i].is_final)
            return 1;
    return 0;
}

void native_names_finish(void)
{
    int saved_errno = errno;
    uint32_t i;

    if (names == NULL)
        return;
    for (i = 0; i < names->libraries_count; i++)
        if (*names->libraries[i].path == '/' && wants_names(i))
            elf_symbols_read(names->libraries[i].path, &names->libraries[i].id,
                             take_symbol, &names->libraries[i]);
    for (i = 0; i < names->functions_count; i++)
        if (!names->functions[i].is_final) {
            names->functions[i].is_final = 1;
            name_by_offset(&names->functions[i], 1, 0);
        }
    errno = saved_errno;
}

void native_names_begin_next(void)
{
    uint32_t i;

    for (i = 0; names != NULL && i < names->functions_count; i++)
        names->functions[i].is_told = 0;
}
