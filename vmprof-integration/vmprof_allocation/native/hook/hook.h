#ifndef VMPROF_ALLOCATION_HOOK_H
#define VMPROF_ALLOCATION_HOOK_H
/* The hook engine: allocation sampling in a stock PyPy.
 *
 * setup.py gives this file to cffi as it is: plain declarations, please.
 *
 * cffi releases the GIL around these calls, so none of them touches the GC.
 * What has to be done with the GIL held and between two allocations is done
 * by the hooks: these calls leave a *request*, and engine.py then makes a
 * *safepoint allocation*: a large object, for which PyPy calls external_malloc(),
 * and with it our hook, which runs the request.  The one thing that engine.py has
 * to do by itself is to store the *entry patch*, a word at the entry of
 * external_malloc(), which lead there.
 *
 * So each step has happened or it has not, and can be taken again, or back,
 * from any state: a hook without a request does nothing but call the GC's own
 * function.
 */

/* Of all that the library has, others may call only this. */
#include <stddef.h>
#include <stdint.h>
#pragma GCC visibility push(default)

/* Where things are in this process (search.py) */
struct hook_place {
    uintptr_t base;             /* of libpypy */
    uintptr_t nursery_free;
    uintptr_t nursery_top;
    uintptr_t entry[3];         /* collect_and_reserve, _minor_collection,
                                   external_malloc */
    int moved[3];               /* bytes of each that go to a trampoline */
    uintptr_t slot[14];         /* libpypy's pointers to C functions, in the
                                   order of layout.py; or 0 */
    uint32_t slots_read_only;   /* bit by bit: with full RELRO, all of them */
    uintptr_t type_info;        /* base of the type table, and in an entry: */
    int type_fixed_size;        /*   size in bytes, without the items */
    int type_item_size;         /*   size of one item */

    /* What probe/ finds out by looking at objects; where it is not certain,
       the value that stands here in brackets */
    uintptr_t gc;               /* the GC's own words, and among them */
    int gc_state;               /*   its state: 1 marking, 2 sweeping (-1) */
    int type_info_bits;         /* in an entry of the type table, a word (-1) */
    int64_t type_is_varsize;    /*   with this bit if there is a length, (0) */
    int type_length;            /*   whose offset in an object is here (-1) */
    uint64_t flag_visited;      /* of an old object that marking met (0) */
    uint64_t flag_pinned;       /* of a young object that stays there (0) */
    int64_t forwarded;          /* what a survivor leaves instead of a header,
                                   in front of its new address (0) */
    uintptr_t heap_blocks;      /* words in which the GC counts bytes: of blocks of
                                   arenas that are in use (0), */
    uintptr_t heap_arenas;      /*   of its arenas (0), */
    uintptr_t heap_large;       /*   of objects outside of both (0), */
    uintptr_t heap_nursery;     /*   and of its nursery (0) */
    int heap_is_counted_on;     /* blocks, while it sweeps, too (0) */
    uintptr_t codemap;          /* the head of the table of the JIT's code (0) */
    uintptr_t jit_phases;       /* a pointer to a list of what the JIT does (0) */
    uintptr_t roots;            /* a pointer to the end of what functions of RPython's
                                   that run refer to (0) */
    int frame_fields[13];       /* how frames say at which line they are: frame_lines.h
                                   (the first one is 0) */
    const char *types;          /* what probe/names.py wrote, ... (NULL) */
    size_t types_size;
};

struct hook_statistics {
    int64_t allocated;          /* bytes, by the GC's own pointers */
    int64_t collections;        /* minor collections */
    int64_t pressures;          /* memory pressures: bytes went uncounted */
    int64_t surprises;          /* nursery_top moved behind our back */
    int64_t samples;            /* allocation samples */
    int64_t lost;               /* allocation samples without a stack */
    int64_t time_samples;
    int64_t dropped;            /* time samples that met another sample */
    int64_t memory;             /* bytes for what becomes of objects, at most */
    int64_t not_followed;       /* objects: there was no room for more */
};

/* Where the library that holds the address 'inside' is loaded; 0: in none */
uintptr_t hook_base(uintptr_t inside);

/* This library, as dlopen() returned it; NULL: not known */
void *hook_handle(void);

/* Room for hook_place.types, which stays; NULL: there is none */
char *hook_room(size_t size);

/* Build the trampolines, and see whether the hooks could be set.  Returns 0 or
   an errno. */
int hook_prepare(const struct hook_place *place);

/* The entry patch, of which so many bytes as are swapped at once (layout.py) are to be
   stored at entry[2]; then hook_entry_changed() */
uint64_t hook_entry_patch(void);
void hook_entry_changed(void);

/* Open the profile on 'fd', and make a file for vmprof.  vmprof is to be
   enabled on that by the calling thread; then hook_watch_forks(), hook_enabled().  Returns the file's
   descriptor, or -errno. */
int hook_open(int fd);

/* vmprof was enabled.  A forked child does not go on with its parent's profile: watch
   for forks from now on; once is enough.  Returns 0 or an errno. */
int hook_watch_forks(void);

/* Then.  'settings' goes into the profile; 'take_time_samples'
   keeps vmprof's timer and signal.  Returns 0 or an errno. */
int hook_enabled(const char *settings, int take_time_samples);

/* Stacks can hold native frames: glibc has what it takes. */
int hook_native_is_possible(void);

/* Between hook_enabled() and hook_hook(): stacks hold native frames, until
   hook_close().  To be called from inside of many Python functions that are called
   in different ways: from these it learns which of the native functions run Python
   ones (native_stack.h).  Returns 0 or an errno; ENOTSUP: this libgcc, or this PyPy,
   is not like that. */
int hook_native(void);

/* Between hook_enabled() and hook_hook(): stacks hold the lines of functions, until
   hook_close().  Returns the descriptor on which _jitlog is to be enabled, which is no
   file; or -errno. */
int hook_lines(void);
int hook_has_lines(void);
/* Then: what it writes is understood. */
int hook_lines_are_as_known(void);

/* Between hook_enabled() and hook_hook(): what C code has of malloc() is sampled, too, until
   hook_unhook(), one sample in 'interval' bytes (raw_memory.h).  Returns 0 or an errno;
   once it is hooked, the next one is 1 if that came about. */
int hook_raw_memory_is_possible(void);
int hook_raw_memory(int64_t interval, uint64_t seed, int fixed_gaps);
int hook_samples_raw_memory(void);

/* Take no more samples than so many a second, or than a share of the time in
   millionths: the interval follows.  0 and 0, or hook_set_interval(): no
   limit.  After hook_sample_children(), for children have the same one. */
void hook_limit(int64_t per_second, int64_t share);

/* What is known of this build allows to find out what becomes of objects. */
int hook_knows_objects(void);

/* Whether stacks are found in PyPy's table of compiled code, and not by vmprof; and whether
   they have, without its log, all functions of compiled code that calls compiled code
   (true_stack.h). */
int hook_knows_code(void);
int hook_knows_callers(void);

/* Whether it can be found at which lines interpreted functions are. */
int hook_knows_lines(void);

/* facts: 0, or the sum of some of these; HOOK_IN_MEMORY: the profile holds no
   samples, only what stacks and types are, for who asks what is alive */
enum { HOOK_TYPES = 1, HOOK_LIFETIMES = 2, HOOK_IN_MEMORY = 4 };

/* Between hook_enabled() and hook_hook(): sample this process's children.  A
   forked one writes 'path', a dot, its pid and 'suffix', with 'settings' to
   which its own are added; one that becomes this same interpreter, which is the
   file 'interpreter', finds 'variable' in its environment ("name=value", in
   front of the value its parent's pid and a tab).  'parent' is this process's, in
   the run; 0: it is the first.  Returns 0 or an errno: its children are not sampled then. */
int hook_sample_children(const char *path, const char *suffix, const char *settings,
                         const char *variable, const char *interpreter, int parent,
                         uint64_t seed);

/* This is a forked child that is sampled as its parent was: 1; 2: and it has
   begun its profile, as there were samples.  0: it is not. */
int hook_is_sampled_child(void);

/* Its profile, or the first one, if it has several */
const char *hook_child_path(void);

/* When the profile began, in nanoseconds of CLOCK_MONOTONIC */
int64_t hook_started(void);

/* Requests, which the next safepoint allocation of the calling thread runs.  The entry
   patch is stored between hook_hook() and its safepoint.  hook_hook() returns 0 or an
   errno. */
int hook_hook(int64_t interval, uint64_t seed, int fixed_gaps, int facts);
void hook_set_interval(int64_t interval);
void hook_unhook(void);
/* The program has ended, and sampling does; or, at the next safepoint
   allocation, the 'profile', too.  All that takes time is done inside of it: other
   threads, which may compute, would have the GIL meanwhile, and keep it. */
void hook_end(int profile);
/* Returns 0 if it has, and all was written; an errno; -1: it has not. */
int hook_end_error(void);

/* The profile ends whole, and the next one begins, which goes to 'fd', with these
   settings, to which the clock is added.  Returns 0 or an errno.  Some safepoint allocations later
   (a thread may be inside the GC), hook_rotated() says how that went: 0, or the
   errno for which the present profile goes on; -1: it did not come about yet.
   '*ended' is then the errno that ended the one before its time, or 0.  In a sampled
   child, 'fd' is closed with the profile. */
int hook_rotate(int fd, const char *next_settings);
int hook_rotated(int *ended);
/* If it did not come about, it won't.  Returns 1 then. */
int hook_forget_rotation(void);
/* The profile that is being written goes to 'fd'. */
int hook_writes_to(int fd);

/* What is alive, of a program that runs on.  HOOK_SNAPSHOT copies what is
   tracked, or only what is at this 'address', if that is not 0; HOOK_CLEAR forgets it;
   HOOK_RESET_PEAK forgets the largest sum.  HOOK_COLLECT has the next allocation collect
   the nursery, though it is not full: what is young is not known to be alive.
   After a safepoint allocation, the first one's copy is there, for hook_free(); NULL: not
   yet, or there is no memory for it. */
struct hook_object {
    uint64_t address;           /* its id(): old objects don't move */
    int64_t key, which;         /* of its sample; see PROFILE.rst */
    int64_t stack;              /* number in the profile; -1: it got lost */
    int64_t size;               /* bytes that were reserved for it */
    int64_t live_size;          /* bytes that it takes: fewer if it was shrunk */
    int64_t interval;           /* mean bytes between two samples, then */
    int64_t type;               /* number in the profile; 0: not known */
    int64_t is_ended;           /* the last heap snapshot did not reach it */
};
enum { HOOK_SNAPSHOT = 1, HOOK_CLEAR, HOOK_RESET_PEAK, HOOK_HELD, HOOK_COLLECT,
       HOOK_REACHED, HOOK_EXAMINED };
void hook_ask(int what, uint64_t address);
/* If it was not asked yet, it will not be. */
void hook_forget_question(void);
struct hook_object *hook_copy(int64_t *count);
void hook_free(struct hook_object *copy);

/* Who holds what is alive (held_by.h).  HOOK_HELD, about the address of a list of the
   GC's roots and sys.modules, has a forked process look at it.  hook_held_looks() waits for
   that, so many seconds at most, or until a signal comes, and returns 1 if it is still at
   work, and -1 if nothing was asked for.  HOOK_REACHED is the same, but the process only
   finds out which of the sampled objects can be reached. */
int hook_held_looks(double seconds);
/* Then: what it found goes into the profile; if it is still at work, it is ended.  Returns
   0; an errno for which there is no such process; 1000 and a problem (held.h); 2000 and
   the signal that ended it; 3000 and the errno with which the profile could not be
   written; -1: nothing was asked for; or -2: the profile, or the process,
   has ended meanwhile, or was about to.  HOOK_EXAMINED then ends the objects that cannot
   be reached in the profile; if its 'address' is 0, it is not certain which objects are
   garbage, and none ends. */
int hook_held(void);
/* Nanoseconds that the last snapshot cost: how long the program stopped, and the processor
   time of the process. */
int64_t hook_held_cost(void);

/* Why a heap snapshot is refused: the program filters its system calls, its address space
   is nearly exhausted, there is not enough memory for the process, or the heap is too
   large. */
enum hook_refusal { HOOK_FILTERED = 1, HOOK_SHORT_OF_ADDRESSES, HOOK_SHORT_OF_MEMORY,
                    HOOK_TOO_LARGE };
/* Check the conditions of a snapshot, before HOOK_HELD and HOOK_REACHED.  'most_heap' is the
   largest heap in bytes.  'memory' becomes the needed and the available bytes.  The next
   process gets this niceness.  Return 0 or an enum hook_refusal. */
int hook_snapshot_refused(int64_t most_heap, int niceness, int64_t memory[2]);

/* Have a minor collection run when this number of bytes was allocated since the last one.
   The GC may run it earlier.  With 0, as at the start, the GC alone decides. */
void hook_collect_every(int64_t bytes);

/* Minor collections since the start */
int64_t hook_collections(void);

/* For probe/: whether the heap looks to us as gc.dump_rpy_heap() wrote it, so many words.
   'types' as in hook_place; 'list' as above.  Returns how many objects look different,
   of which 'most' are named in 'differ', or as hook_held(), but negative. */
int64_t hook_held_compare(uintptr_t type_info, const char *types, size_t types_size,
                          uint64_t list, const int64_t *dump, size_t words,
                          uint64_t *differ, size_t most);

/* Estimated bytes that are tracked, now and at most */
void hook_traced(double *alive, double *peak);

/* What the calling thread allocates is not the program's, nor is a major collection
   that it asks for, until it calls hook_ignore(0).  Returns what was so before. */
int hook_ignore(int ignored);

/* The program names this moment, in UTF-8.  Returns 0 or an errno. */
int hook_mark(const char *name);
/* What the program calls this thread of the kernel's; 0: its own command. */
void hook_named(int64_t thread, const char *name);
/* Add to the settings in the profile: "key=value" (PROFILE.rst). */
void hook_note(const char *note);

/* A set of labels, in UTF-8: "key=value" with 0x1f between them.  Returns its number, or
   0 if there are too many.  One thread at a time. */
int hook_define_label(const char *text);
/* From now on, what the calling thread allocates has these; 0: none. */
void hook_label(int number);

/* Write the names and stacks that wait.  Returns the first errno of the profile's file, 0 if
   it had no error, or -1 without a profile. */
int hook_flush(void);

/* 1 while allocations are sampled */
int hook_is_sampling(void);

/* 1 until libpypy's code and the GC's fields are what they were without us.
   0 can become 1 by storing the entry patch only. */
int hook_is_hooked(void);

/* Write the samples, and get ready for the calling thread to disable vmprof,
   which is to be done if this returns 1, and in a forked child.  Then call
   hook_close(), which gives the rest back, and returns 0 or the errno that
   ended the profile.  All that is harmless if it was done before. */
int hook_disabling(void);
int hook_close(void);

/* To be called before hook_close() if the calling thread has not disabled
   vmprof: another one may be about to */
void hook_await_end(void);

/* The profile ends, as it does when the process exits: for a forked child that has
   next to nothing of ours on its heap (resident.py).  The hooks stay, and do nothing. */
void hook_finish(void);

/* Why the profile ends before its time; or an empty string */
const char *hook_ended(void);

void hook_get_statistics(struct hook_statistics *statistics);

#pragma GCC visibility pop

#endif
