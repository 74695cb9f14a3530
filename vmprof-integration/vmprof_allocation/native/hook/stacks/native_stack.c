#define _GNU_SOURCE
#include "native_stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#include "machines/found_object.h"

#define UNWINDER        "libgcc_s.so.1"
#define LEAST_FRAMES    5       /* minimum number of Python frames from which the
                                   functions that run them can be found */

/* The functions of glibc and libgcc. */
static found_object_finder *find_object;
static _Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
static _Unwind_Word (*get_cfa)(struct _Unwind_Context *);
static _Unwind_Ptr (*get_function)(struct _Unwind_Context *);
static _Unwind_Ptr (*get_address)(struct _Unwind_Context *);
static void *(*find_function)(void *);

/* The library whose frames are omitted, and the unwinder's library. */
static struct native_library own, unwinder;
/* The functions that run Python frames. */
static uintptr_t loops[NATIVE_LOOPS];
static size_t loops_count;

int native_stack_is_possible(void)
{
    return found_object_find_finder() != NULL;
}

/* Return whether a library calls glibc's _dl_find_object().  This is so if its string table
   contains the name of the function, because the library has no other use for the name. */
static int finds_objects(void *handle)
{
    const ElfW(Dyn) *entry;
    struct link_map *map;
    uintptr_t strings = 0;
    size_t size = 0;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return 0;
    for (entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB)
            strings = entry->d_un.d_ptr;
        else if (entry->d_tag == DT_STRSZ)
            size = entry->d_un.d_val;
    }
    return strings > map->l_addr &&
           memmem((const void *)strings, size, FOUND_OBJECT_FINDER,
                  sizeof FOUND_OBJECT_FINDER) != NULL;
}

int native_stack_open(const void *own_code)
{
    void *handle;

    memset(&own, 0, sizeof own);
    find_object = found_object_find_finder();
    if (find_object == NULL)
        return ENOTSUP;
    /* the unwinder stays loaded, because a thread that ends may need it, too */
    handle = dlopen(UNWINDER, RTLD_NOW | RTLD_NODELETE);
    if (handle == NULL)
        return ENOENT;
    *(void **)&backtrace = dlsym(handle, "_Unwind_Backtrace");
    *(void **)&get_cfa = dlsym(handle, "_Unwind_GetCFA");
    *(void **)&get_function = dlsym(handle, "_Unwind_GetRegionStart");
    *(void **)&get_address = dlsym(handle, "_Unwind_GetIP");
    *(void **)&find_function = dlsym(handle, "_Unwind_FindEnclosingFunction");
    if (backtrace == NULL || get_cfa == NULL || get_function == NULL ||
        get_address == NULL || find_function == NULL || !finds_objects(handle))
        backtrace = NULL;
    if (backtrace != NULL &&
        !native_stack_library((uintptr_t)backtrace, &unwinder))
        backtrace = NULL;
    dlclose(handle);
    if (own_code != NULL)
        (void)native_stack_library((uintptr_t)own_code, &own);
    return backtrace == NULL ? ENOTSUP : 0;
}

int native_stack_library(uintptr_t address, struct native_library *library)
{
    struct found_object found;

    if (find_object((void *)address, &found) != 0)
        return 0;
    library->base = found.link_map->l_addr;
    library->start = (uintptr_t)found.start;
    library->end = (uintptr_t)found.end;
    library->path = found.link_map->l_name;
    return 1;
}

int native_stack_is_unwinder(uintptr_t address)
{
    return unwinder.start <= address && address < unwinder.end;
}

/* ____________________________________________________________ */
/* walk */

struct walk {
    uintptr_t *functions;
    size_t count, most;
    uintptr_t limit, last;
};

static int is_loop(uintptr_t function)
{
    size_t i;

    for (i = 0; i < loops_count; i++)
        if (loops[i] == function)
            return 1;
    return 0;
}

/* Handle one frame of a walk, innermost first. */
static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    uintptr_t function = get_function(context);

    /* for code without an unwind table, the unwinder repeats the function of the last
       frame */
    if (function == walk->last &&
        (uintptr_t)find_function((void *)get_address(context)) != function)
        return _URC_END_OF_STACK;
    walk->last = function;
    if (function >= own.start && function < own.end)
        return _URC_NO_REASON;
    /* libgcc's "CFA" is the stack address at which the frame called its callee */
    if (function == 0 || get_cfa(context) >= walk->limit ||
        walk->count == walk->most || is_loop(function))
        return _URC_END_OF_STACK;
    walk->functions[walk->count++] = function;
    return _URC_NO_REASON;
}

size_t native_stack_walk(uintptr_t *functions, size_t most, uintptr_t limit)
{
    struct walk walk = { functions, 0, most, limit, 0 };

    (void)backtrace(visit, &walk);
    return walk.count;
}

/* ____________________________________________________________ */
/* functions that run Python frames */

static size_t count_of(const uintptr_t *functions, size_t count, uintptr_t function)
{
    size_t i, found = 0;

    for (i = 0; i < count; i++)
        found += functions[i] == function;
    return found;
}

/* Return whether 'function' occurs exactly once between each index in 'places' and the next
   one. */
static int is_in_each(const uintptr_t *functions, const size_t *places,
                      size_t places_count, uintptr_t function)
{
    size_t i;

    for (i = 0; i + 1 < places_count; i++)
        if (count_of(functions + places[i], places[i + 1] - places[i],
                     function) != 1)
            return 0;
    return 1;
}

size_t native_stack_find_loops(const uintptr_t *functions, size_t count,
                               uintptr_t found[NATIVE_LOOPS])
{
    size_t places[NATIVE_WINDOW], places_count = 0, most = 0, result = 0, i;
    uintptr_t first = 0;

    if (count > NATIVE_WINDOW)
        count = NATIVE_WINDOW;
    /* Choose the innermost of the most frequent functions.  Outer functions may occur one
       time less, because only a part of the stack is examined. */
    for (i = 0; i < count; i++) {
        size_t times = count_of(functions, count, functions[i]);
        if (times > most) {
            most = times;
            first = functions[i];
        }
    }
    if (most < LEAST_FRAMES)
        return 0;
    for (i = 0; i < count; i++)
        if (functions[i] == first)
            places[places_count++] = i;
    for (i = places[0]; i < places[1]; i++)
        if (is_in_each(functions, places, places_count, functions[i])) {
            if (result == NATIVE_LOOPS)
                return 0;
            found[result++] = functions[i];
        }
    return result;
}

int native_stack_learn(void)
{
    uintptr_t functions[NATIVE_WINDOW];
    size_t count;

    if (loops_count > 0)
        return 0;               /* the functions that run Python frames do not change */
    count = native_stack_walk(functions, NATIVE_WINDOW, UINTPTR_MAX);
    if (count == NATIVE_WINDOW)
        loops_count = native_stack_find_loops(functions, count, loops);
    return loops_count > 0 ? 0 : ENOTSUP;
}
