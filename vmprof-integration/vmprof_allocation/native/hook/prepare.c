#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "gc/heap.h"
#include "gc/nursery.h"
#include "gc/objects.h"
#include "gc/types.h"
#include "hook.h"
#include "jit/codemap.h"
#include "jit/jit_work.h"
#include "lines/frame_lines.h"
#include "lines/jit_log.h"
#include "machines/jit_call.h"
#include "patches/divert.h"
#include "patches/trampoline.h"
#include "process/process_end.h"
#include "process/sampled_child.h"
#include "process/start_stop.h"
#include "recorder.h"
#include "snapshots/held_by.h"
#include "stacks/walk.h"
#include "vmprof/vmprof_output.h"

/* The implementation of hook_prepare(), which gives each module the addresses in this
   process.  Nothing in libpypy changes yet. */

static struct hook_place place;

/* Return the address of a function of libpypy, or NULL. */
static void *pypy_symbol(const char *name)
{
    void *address, *library = RTLD_DEFAULT;
    Dl_info info;

    /* libpypy may have been loaded with RTLD_LOCAL */
    if (dladdr((const void *)place.entry[0], &info) != 0)
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    address = dlsym(library != NULL ? library : RTLD_DEFAULT, name);
    if (address == NULL || hook_base((uintptr_t)address) != place.base)
        return NULL;
    return address;
}

static int64_t large_size(uintptr_t type, intptr_t length)
{
    const char *info = (const char *)place.type_info + (uint32_t)type;
    int64_t size, item;

    /* external_malloc() also adds nothing for a length of 0 */
    memcpy(&size, info + place.type_fixed_size, sizeof size);
    if (length > 0) {
        memcpy(&item, info + place.type_item_size, sizeof item);
        size += item * length;
    }
    return (size + 7) & ~(int64_t)7;
}

/* Build the trampolines, and check that they can be made writable.  Returns 0 or an
   errno. */
static int prepare_trampolines(void)
{
    static void *const detour[TRAMPOLINES] = {
        (void *)start_stop_collect_and_reserve,
        (void *)start_stop_minor_collection,
        (void *)start_stop_external_malloc,
    };
    int error = trampoline_build(place.entry, place.moved, detour);

    if (error == 0)
        error = trampoline_writable(1);
    if (error != 0) {
        (void)trampoline_writable(0);
        return error;
    }
    return trampoline_writable(0);
}

static ssize_t on_write(int fd, const void *data, size_t size)
{
    if (!jit_log_is(fd))
        return vmprof_output_write(fd, data, size);
    /* a sample without the GIL reads the lines under this lock */
    recorder_lock();
    jit_log_write(data, size);
    recorder_unlock();
    return (ssize_t)size;
}

static void prepare_diverts(void)
{
    typedef char same_number[
        sizeof place.slot / sizeof *place.slot == DIVERTS ? 1 : -1];
    static const uintptr_t ours[DIVERTS] = {
        [DIVERT_WRITE] = (uintptr_t)on_write,
        [DIVERT_MMAP] = (uintptr_t)vmprof_output_mmap,
        [DIVERT_MMAP64] = (uintptr_t)vmprof_output_mmap,
        [DIVERT_MUNMAP] = (uintptr_t)vmprof_output_munmap,
        [DIVERT_LSEEK] = (uintptr_t)vmprof_output_lseek,
        [DIVERT_LSEEK64] = (uintptr_t)vmprof_output_lseek,
        [DIVERT_EXIT] = (uintptr_t)process_end_exit,
        [DIVERT_ABORT] = (uintptr_t)process_end_abort,
        [DIVERT_KILL] = (uintptr_t)process_end_kill,
        [DIVERT_RAISE] = (uintptr_t)process_end_raise,
        [DIVERT_EXECV] = (uintptr_t)process_end_execv,
        [DIVERT_EXECVE] = (uintptr_t)process_end_execve,
        [DIVERT_SIGACTION] = (uintptr_t)vmprof_output_sigaction,
        [DIVERT_FREE] = (uintptr_t)objects_free,
    };

    (void)sizeof(same_number);
    divert_prepare(place.slot, place.slots_read_only, ours);
}

static void before_collection(void)
{
    heap_seen();
    objects_before_collection();
}

static void after_collection(void)
{
    heap_seen();
    objects_after_collection();
}

static void prepare_nursery(void)
{
    nursery.free = (char **)place.nursery_free;
    nursery.top = (char **)place.nursery_top;
    nursery.original.collect_and_reserve =
        (void *(*)(void *, intptr_t))trampoline_original(0);
    nursery.original.minor_collection =
        (void (*)(void *))trampoline_original(1);
    nursery.original.external_malloc =
        (void *(*)(void *, uintptr_t, intptr_t, uintptr_t))
            trampoline_original(2);
    nursery.large_size = large_size;
    nursery.take_sample = child_take_sample;
    nursery.is_ignored = walk_is_ignored;
    nursery.before_collection = before_collection;
    nursery.after_collection = after_collection;
}

void *hook_handle(void)
{
    Dl_info info;

    /* the library is linked so that it stays loaded */
    return dladdr((const void *)(uintptr_t)hook_handle, &info) == 0
               ? NULL
               : dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

char *hook_room(size_t size)
{
    void *room = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return room == MAP_FAILED ? NULL : room;
}

int hook_prepare(const struct hook_place *p)
{
    static int is_prepared;
    int error;

    if (is_prepared)
        return 0;       /* the modules may already use the first 'place' */
    place = *p;
    error = prepare_trampolines();
    if (error != 0)
        return error;
    walk_prepare((long (*)(void))pypy_symbol("vmprof_enter_signal"),
                 (long (*)(void))pypy_symbol("vmprof_exit_signal"));
    prepare_diverts();
    prepare_nursery();
    types_prepare(&place, place.types, place.types_size);
    objects_prepare(&place);
    heap_prepare(&place);
    codemap_prepare(place.codemap);
    held_by_prepare(&place);
    jit_work_prepare(place.jit_phases, place.roots);
    frame_lines_prepare(place.roots, place.frame_fields);
    is_prepared = 1;
    return 0;
}

int hook_knows_lines(void)
{
    return frame_lines_are_known();
}

int hook_knows_code(void)
{
    return place.codemap != 0;
}

int hook_knows_callers(void)
{
    return place.codemap != 0 && jit_table_is_whole();
}
