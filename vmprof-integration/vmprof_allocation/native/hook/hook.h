#ifndef VMPROF_ALLOCATION_HOOK_H
#define VMPROF_ALLOCATION_HOOK_H
/* The interface of the hook engine, which samples allocations in a stock PyPy.
 *
 * engines/hook/engine.py calls these functions through cffi.  setup.py passes this file
 * to cffi without the lines that begin with #, so it may contain only plain declarations.
 *
 * cffi releases the GIL during each call.  Therefore, none of these functions touches the
 * GC.  An action that needs the GIL, and that must happen between two allocations, is
 * recorded as a *request*.  engine.py then makes a *safepoint allocation*: PyPy calls
 * external_malloc() for a large object, and our hook in that function runs the request.
 * Before sampling starts, there is no hook yet.  Therefore, engine.py itself stores the
 * *entry patch*, a word at the entry of external_malloc() that leads to our hook.
 *
 * Hooking has no half-finished steps.  Each step can be repeated or undone at any time,
 * because a hook without a request only calls the GC's own function.
 *
 * engine.py holds its lock during most calls, so one thread at a time uses these
 * functions.  It may be any thread of the program.
 */

/* The library exports only the functions below. */
#include <stddef.h>
#include <stdint.h>
#pragma GCC visibility push(default)

/* The addresses and the object layout of this process, found by engines/hook/discovery. */
struct hook_place {
    uintptr_t base;             /* address at which libpypy is loaded */
    uintptr_t nursery_free;
    uintptr_t nursery_top;
    uintptr_t entry[3];         /* addresses of collect_and_reserve,
                                   _minor_collection, and external_malloc */
    int moved[3];               /* bytes of each function that move to its trampoline */
    uintptr_t slot[14];         /* addresses of libpypy's pointers to C functions, in
                                   the order of IMPORTS in layout.py; 0 if libpypy
                                   lacks the pointer */
    uint32_t slots_read_only;   /* bit i is set if slot[i] is read-only; with full
                                   RELRO, all bits are set */
    uintptr_t type_info;        /* address of the GC's type table; the next two
                                   fields are offsets in an entry of the table */
    int type_fixed_size;        /* offset of an object's size in bytes without items */
    int type_item_size;         /* offset of the field with an item's size in bytes */

    /* Results of engines/hook/probe.  A field that is unknown has the value in brackets. */
    uintptr_t gc;               /* address of the GC struct */
    int gc_state;               /* offset of gc_state in the GC struct; its value is 1
                                   during marking, and 2 during sweeping (-1) */
    int type_info_bits;         /* offset of the flag word in an entry of the type
                                   table (-1) */
    int64_t type_is_varsize;    /* bit of the flag word that is set if objects of the
                                   type have a length (0) */
    int type_length;            /* offset, in an entry of the type table, of a word: the
                                   offset of the length in an object (-1) */
    uint64_t flag_visited;      /* header bit of an old object that marking has
                                   reached (0) */
    uint64_t flag_pinned;       /* header bit of a young object that is pinned (0) */
    int64_t forwarded;          /* word that replaces the header of a survivor in the
                                   nursery; the next word is the survivor's new
                                   address (0) */
    uintptr_t heap_blocks;      /* address of the GC's count of bytes in used blocks
                                   of arenas (0) */
    uintptr_t heap_arenas;      /* address of the GC's count of bytes in arenas (0) */
    uintptr_t heap_large;       /* address of the GC's count of bytes in large
                                   objects (0) */
    uintptr_t heap_nursery;     /* address of the size of the nursery in bytes (0) */
    int heap_is_counted_on;     /* whether the count of used blocks is also valid while
                                   the GC sweeps (0) */
    uintptr_t codemap;          /* address of the first node of PyPy's table of
                                   compiled code (0) */
    uintptr_t jit_phases;       /* address of a pointer to the list of the JIT's
                                   current phases (0) */
    uintptr_t roots;            /* address of the pointer to the top of the shadow
                                   stack, which holds the references of running
                                   RPython functions (0) */
    int frame_fields[13];       /* offsets and types for finding the lines of frames, in
                                   the order of the enum in frame_lines.h (the first
                                   one is 0) */
    const char *types;          /* text with the names of types, written by
                                   probe/names.py; it must stay in memory (NULL) */
    size_t types_size;          /* size of this text in bytes */
};

/* The engine's counts since sampling started. */
struct hook_statistics {
    int64_t allocated;          /* allocated bytes: the advance of nursery_free, and the
                                   sizes of objects outside of the nursery */
    int64_t collections;        /* minor collections */
    int64_t pressures;          /* calls of raw_malloc_memory_pressure(), which leave
                                   some bytes uncounted */
    int64_t surprises;          /* times that nursery_top was changed by code which is
                                   not hooked */
    int64_t samples;            /* allocation samples */
    int64_t lost;               /* allocation samples without a stack */
    int64_t time_samples;       /* CPU samples */
    int64_t dropped;            /* CPU samples that were dropped because another
                                   sample was being taken */
    int64_t memory;             /* peak memory in bytes of the tables that track outcomes */
    int64_t not_followed;       /* sampled objects for which these tables had no room */
};

/* Return the address at which the library that contains the address 'inside' is loaded,
   or 0 if no library contains it. */
uintptr_t hook_base(uintptr_t inside);

/* Return dlopen()'s handle of the library that contains this engine, or NULL if it is
   unknown. */
void *hook_handle(void);

/* Return memory of 'size' bytes for hook_place.types, or NULL if there is not enough.
   The memory is never freed. */
char *hook_room(size_t size);

/* Build the trampolines (patches/trampoline.h), and check whether the hooks could be set.
   Changes nothing in libpypy.  Returns 0 or an errno.  After a success, further calls do
   nothing. */
int hook_prepare(const struct hook_place *place);

/* Return the entry patch of external_malloc().  The caller stores its lowest bytes at
   entry[2] in one store, and then calls hook_entry_changed().  SWAPPED in layout.py is the
   number of these bytes. */
uint64_t hook_entry_patch(void);
/* Make all processors see the stored entry patch. */
void hook_entry_changed(void);

/* Open the profile on 'fd', and make the decoy, a file for the output of vmprof.  Returns
   the descriptor of the decoy, or -errno.  The calling thread must then enable vmprof on
   the decoy, and call hook_watch_forks() and hook_enabled().  hook_close() undoes
   hook_open(). */
int hook_open(int fd);

/* Watch for forks from now on, because a forked child must not continue its parent's
   profile.  Call it after vmprof was enabled; further calls do nothing.  Returns 0 or an
   errno. */
int hook_watch_forks(void);

/* Begin the profile with 'settings' (PROFILE.rst), after vmprof was enabled and
 * hook_watch_forks() was called.  If 'take_time_samples' is true, vmprof's timer and
 * signal take CPU samples.  Otherwise, the signal and the timer are given back to the
 * program.  Returns 0 or an errno.
 */
int hook_enabled(const char *settings, int take_time_samples);

/* Return whether samples can have native frames: glibc must have _dl_find_object(). */
int hook_native_is_possible(void);

/* Add native frames to the stacks until hook_close().  Call it between hook_enabled() and
 * hook_hook(), below many nested Python functions that are called in different ways.
 * From these calls, hook_native() learns which native functions run Python functions
 * (native_stack.h).  Returns 0 or an errno: ENOTSUP if this libgcc or this PyPy is
 * unsuitable.
 */
int hook_native(void);

/* Add line numbers to the stacks until hook_close().  Call it between hook_enabled() and
   hook_hook().  Returns the placeholder descriptor on which the caller must enable
   _jitlog, or -errno.  No open file has this descriptor. */
int hook_lines(void);
/* Return whether stacks get line numbers, after hook_lines(). */
int hook_has_lines(void);
/* Return whether _jitlog writes the known version of its log.  Call it after _jitlog was
   enabled. */
int hook_lines_are_as_known(void);

/* Return whether native memory (malloc) can be sampled on this machine.  malloc() is also
   called without the GIL.  There, vmprof must find the return addresses of compiled code
   by itself (jit_returns_are_in_place()). */
int hook_raw_memory_is_possible(void);
/* Sample native memory until hook_unhook(), with one sample per 'interval' bytes on
   average (raw_memory.h).  Call it between hook_enabled() and hook_hook().  Returns 0 or
   an errno. */
int hook_raw_memory(int64_t interval, uint64_t seed, int fixed_gaps);
/* Return whether native memory is being sampled.  Valid after the hooks are set. */
int hook_samples_raw_memory(void);

/* Limit the samples to 'per_second' samples per second, or their cost to 'share'
 * millionths of the run time.  The interval changes to keep the limit.  With 0 and 0, or
 * after hook_set_interval(), there is no limit.  Call it after hook_sample_children(),
 * because children get the same limit.
 */
void hook_limit(int64_t per_second, int64_t share);

/* Return whether types and outcomes of objects can be found in this build of PyPy. */
int hook_knows_objects(void);

/* Return whether stacks come from PyPy's table of compiled code instead of vmprof's
   handler. */
int hook_knows_code(void);
/* Return whether PyPy's table contains all functions of compiled code that calls compiled
   code (true_stack.h).  Otherwise, the missing functions are in PyPy's JIT log. */
int hook_knows_callers(void);

/* Return whether the lines of interpreted functions can be found. */
int hook_knows_lines(void);

/* Flags for the argument 'facts' of hook_hook(), which select the recorded properties of
   sampled objects.  0 selects none.  With HOOK_IN_MEMORY, the profile has stacks and types
   but no samples.  The module tracemalloc uses this flag, because tracemalloc only needs
   the live objects. */
enum { HOOK_TYPES = 1, HOOK_LIFETIMES = 2, HOOK_IN_MEMORY = 4 };

/* Sample the children of this process.  Call it between hook_enabled() and hook_hook().
 *
 * A forked child writes its profile to the file that is named 'path', a dot, its PID, and
 * 'suffix'.  The child's own settings are appended to 'settings'.  A child that executes
 * the file 'interpreter' gets 'variable' in its environment.  'variable' is "name=value";
 * before the value, the PID of the child's parent and a tab are inserted.  'parent' is the
 * PID of this process's parent in the run, or 0 for the first process.
 *
 * Returns 0, or an errno if children will not be sampled.
 */
int hook_sample_children(const char *path, const char *suffix, const char *settings,
                         const char *variable, const char *interpreter, int parent,
                         uint64_t seed);

/* Return 1 if this process is a sampled forked child, or 2 if it has also begun its
   profile, because it took a sample.  Otherwise, return 0. */
int hook_is_sampled_child(void);

/* Return the path of a sampled child's profile; if it has several segments, of the first
   one. */
const char *hook_child_path(void);

/* Return the time at which the profile began, in nanoseconds of CLOCK_MONOTONIC. */
int64_t hook_started(void);

/* Request that the GC be hooked and sampling start.  Like all requests below, this one is
 * run by the next safepoint allocation of the calling thread.  The caller must store the
 * entry patch between hook_hook() and the safepoint allocation.  'interval' is in bytes.
 * Returns 0 or an errno.
 */
int hook_hook(int64_t interval, uint64_t seed, int fixed_gaps, int facts);
/* Request another mean interval in bytes, and remove the limit of hook_limit(). */
void hook_set_interval(int64_t interval);
/* Request that sampling stop and libpypy's code be restored. */
void hook_unhook(void);
/* Request the end of sampling because the program has ended.  If 'profile' is true, the
 * request also ends the profile and restores libpypy's code.  All slow steps happen within
 * the request, which keeps the GIL.  After the GIL is released, a thread that computes
 * could take and keep it.
 */
void hook_end(int profile);
/* Return 0 if hook_end(1) has written the whole profile, an errno if writing failed, or
   -1 if the profile has not been ended. */
int hook_end_error(void);

/* Request that the profile be completed, and that the next segment begin on 'fd' with
   'next_settings'.  The start of the segment is appended to these settings.  In a sampled
   child, 'fd' is closed together with the profile.  Returns 0 or an errno. */
int hook_rotate(int fd, const char *next_settings);
/* Return the result of hook_rotate(): 0, the errno because of which the present profile
 * continues, or -1 if the request has not run yet.  The request may need several
 * safepoint allocations, because a thread may be inside the GC.  '*ended' becomes the
 * errno that had ended the previous segment early, or 0.
 */
int hook_rotated(int *ended);
/* Withdraw the request for a rotation.  Returns 1 if the request had not run yet, otherwise
   0. */
int hook_forget_rotation(void);
/* Return whether the present profile is written to 'fd'. */
int hook_writes_to(int fd);

/* A tracked object, as hook_copy() returns it. */
struct hook_object {
    uint64_t address;           /* id() of the object; old objects do not move */
    int64_t key, which;         /* number of the sample, and number of the object among
                                   the sampled objects of this sample (PROFILE.rst) */
    int64_t stack;              /* number of the stack in the profile; -1 if it was lost */
    int64_t size;               /* bytes that were reserved for the object */
    int64_t live_size;          /* bytes that the object takes; fewer than 'size' if it
                                   was shrunk */
    int64_t interval;           /* mean bytes between two samples when the object was
                                   sampled */
    int64_t type;               /* number of the type in the profile; 0 if it is unknown */
    int64_t is_ended;           /* whether the last heap snapshot did not reach the
                                   object */
};
/* Questions for hook_ask(), which are requests about the tracked objects.
 *
 * HOOK_SNAPSHOT copies the tracked objects that have not ended.  If 'address' is not 0,
 * it copies only the object at this address.  The copy is available from hook_copy()
 * after the safepoint allocation.
 *
 * HOOK_CLEAR forgets the tracked objects, and HOOK_RESET_PEAK the peak of their bytes.
 *
 * HOOK_COLLECT makes the next allocation collect the nursery, even if it is not full.
 * Before this collection, it is unknown which young objects are alive.
 *
 * HOOK_HELD and HOOK_REACHED fork a process for a heap snapshot (held_by.h).  'address'
 * is the address of a list with the GC's roots and sys.modules.  With HOOK_HELD, the
 * process finds the retainers.  With HOOK_REACHED, it only finds which sampled objects
 * are reachable.
 *
 * HOOK_EXAMINED records that the objects that the snapshot did not reach have ended.  If
 * 'address' is 0, it is uncertain which objects are garbage, and none ends.
 */
enum { HOOK_SNAPSHOT = 1, HOOK_CLEAR, HOOK_RESET_PEAK, HOOK_HELD, HOOK_COLLECT,
       HOOK_REACHED, HOOK_EXAMINED };
/* Make a request for the question 'what', one of the values above.  The use of 'address'
   depends on the question. */
void hook_ask(int what, uint64_t address);
/* Withdraw the question of hook_ask() if its request has not run yet. */
void hook_forget_question(void);
/* Return the copy that HOOK_SNAPSHOT made, and its length in '*count'.  Returns NULL if
   the copy has not been made yet, or if there was not enough memory.  The caller must
   free the copy with hook_free(). */
struct hook_object *hook_copy(int64_t *count);
/* Free a copy of hook_copy(). */
void hook_free(struct hook_object *copy);

/* Wait until the process of a heap snapshot has finished, at most for 'seconds', or until
   a signal arrives.  Returns 0 if it has finished, 1 if it is still running, or -1 if no
   snapshot was requested. */
int hook_held_looks(double seconds);
/* Write the retainers that the process of HOOK_HELD found into the profile.  A process
 * that is still running is killed.  Returns 0 after a success, otherwise:
 *
 * - an errno if the process could not be started;
 * - 1000 plus a problem of held.h;
 * - 2000 plus the signal that ended the process;
 * - 3000 plus the errno with which the profile could not be written;
 * - -1 if no snapshot was requested;
 * - -2 if the profile or the program's process has ended meanwhile, or is about to end.
 */
int hook_held(void);
/* Return the cost of the last snapshot in nanoseconds: the program's pause plus the CPU
   time of the snapshot's process. */
int64_t hook_held_cost(void);

/* Reasons for which a heap snapshot is refused, in this order: the program filters its
   system calls, its address space is nearly exhausted, the system's memory is nearly
   exhausted, or the heap is too large. */
enum hook_refusal { HOOK_FILTERED = 1, HOOK_SHORT_OF_ADDRESSES, HOOK_SHORT_OF_MEMORY,
                    HOOK_TOO_LARGE };
/* Check whether a heap snapshot is possible, before HOOK_HELD or HOOK_REACHED.
 * 'most_heap' is the largest permitted heap in bytes, or INT64_MAX.  'memory' becomes the
 * needed and the available bytes.  The process of the next snapshot gets the given
 * niceness.  Returns 0 or an enum hook_refusal.
 */
int hook_snapshot_refused(int64_t most_heap, int niceness, int64_t memory[2]);

/* Run a minor collection when 'bytes' bytes were allocated since the last one.  The GC
   may run one earlier.  With 0, which is the default, the GC alone decides. */
void hook_collect_every(int64_t bytes);

/* Return the number of minor collections since sampling started. */
int64_t hook_collections(void);

/* Compare our walk of the heap with the GC's own, for probe/references.py.  'dump' is the
 * output of gc.dump_rpy_heap() and has 'words' words.  'types' contains the names of the
 * types, in the format of hook_place.types.  'list' is the address of the list of roots,
 * as for HOOK_HELD.  Returns the number of objects that differ, and stores up to 'most' of
 * their addresses in 'differ'.  If the walk failed, returns the negated error code of
 * hook_held().
 */
int64_t hook_held_compare(uintptr_t type_info, const char *types, size_t types_size,
                          uint64_t list, const int64_t *dump, size_t words,
                          uint64_t *differ, size_t most);

/* Store the estimated bytes of the live objects that the tracked objects represent: the
   present bytes in '*alive', and the largest in '*peak'. */
void hook_traced(double *alive, double *peak);

/* Exclude the allocations of the calling thread, and the major collections that it
   requests, from the profile until it calls hook_ignore(0).  Returns the previous
   setting. */
int hook_ignore(int ignored);

/* Record a mark: 'name', in UTF-8, is the program's name for the present moment.  Returns 0
   or an errno. */
int hook_mark(const char *name);
/* Record the name that the program gave to a thread.  'thread' is the kernel's number of
   the thread.  With 0, 'name' is the command line of the process. */
void hook_named(int64_t thread, const char *name);
/* Add 'note', a pair "key=value", to the settings in the profile (PROFILE.rst). */
void hook_note(const char *note);

/* Define a set of labels in UTF-8: "key=value" pairs, separated by the byte 0x1f.
   Returns the number of the set, or 0 if there are too many sets.  Only one thread at a
   time may call hook_define_label(). */
int hook_define_label(const char *text);
/* Attach the set of labels with this number to all further allocations of the calling
   thread.  With 0, further allocations have no labels. */
void hook_label(int number);

/* Write the pending names and stacks into the profile.  Returns 0, the errno with which a
   write of the profile first failed, or -1 without a profile. */
int hook_flush(void);

/* Return 1 while allocations are sampled. */
int hook_is_sampling(void);

/* Return 0 if libpypy's code and the GC's fields are in their original state, otherwise
   1.  Only storing the entry patch can change 0 to 1. */
int hook_is_hooked(void);

/* Write the samples, and prepare for disabling vmprof.  If the result is 1, or in a forked
   child, the calling thread must disable vmprof next.  Then it must call hook_close().
   May be called again. */
int hook_disabling(void);
/* Give back everything that hook_open() and the later calls took.  Returns 0, or the
   errno that ended the profile early.  May be called again. */
int hook_close(void);

/* Wait until another thread has disabled vmprof.  Call it before hook_close() if the
   calling thread has not disabled vmprof itself. */
void hook_await_end(void);

/* End the profile as at the exit of the process, and keep the hooks, which then do
   nothing.  For a forked child that has almost none of our modules on its heap
   (resident.py). */
void hook_finish(void);

/* Return the reason for which the profile ended early, or an empty string. */
const char *hook_ended(void);

/* Store the present counts in '*statistics'. */
void hook_get_statistics(struct hook_statistics *statistics);

#pragma GCC visibility pop

#endif
