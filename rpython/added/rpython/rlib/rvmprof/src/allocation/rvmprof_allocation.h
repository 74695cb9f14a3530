#pragma once
/* Allocation samples: see rpython/memory/gc/sampling.py for what the GC does,
   recorder.h for how a sample is taken, profile_log.h for what is written. */

#include "vmprof_allocation.h"

#include <stdint.h>

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)

/* For rvmprof.py.  Those that return something return 0, or -1 and an errno.
 */

/* Before vmprof_init(): write the profile on 'fd' by way of the recorder.
   'take_time_samples' keeps vmprof's timer; 'memory' as for vmprof_init(). */
RPY_EXTERN int vmprof_allocation_open(int fd, int take_time_samples,
                                      int memory);
/* No more samples than so many a second, or than a share of the time in
   millionths: see pace.h */
RPY_EXTERN void vmprof_allocation_limit(intptr_t per_second, intptr_t share);
/* What the GC calls its types: type_names.h.  Once in a process will do. */
RPY_EXTERN void vmprof_allocation_type_names(char *text, intptr_t size);
/* After vmprof_enable().  'settings' go into the profile, and 'own' into this
   part of it alone; 'lifetimes': what becomes of the objects is to be known, not
   only of which type they are; 'in_memory': the profile is to hold no samples, only
   what stacks and types are, for vmprof_allocation_alive() */
RPY_EXTERN int vmprof_allocation_start(char *settings, char *own, int lifetimes,
                                       int in_memory, int fixed_gaps);
/* This part of the profile ends, whole, and the next one begins, which goes to
   'fd'; what is tracked is alive in the next one, too.  Between two allocations, right behind a
   minor collection.  Returns 0; an errno if the next one can't be begun: then the
   present one goes on; or a negative errno, which has ended the present one
   before. */
RPY_EXTERN int vmprof_allocation_rotate(int fd, char *own);
/* What numbers the classes of sampled objects: cintf.CLASS_OF.  NULL: they have none */
RPY_EXTERN void vmprof_allocation_classes(intptr_t (*class_of)(void *object));
/* The name of a class that has this number.  It may come later than its first
   object, or, in a process that is killed, never. */
RPY_EXTERN void vmprof_allocation_class_name(intptr_t number, char *name,
                                             intptr_t size);
/* The program names this moment. */
RPY_EXTERN void vmprof_allocation_mark(char *name);
/* A set of labels, "key=value" with 0x1f between them: its number, or 0 if there are too
   many.  What the calling thread allocates from now on has that set; 0: none. */
RPY_EXTERN intptr_t vmprof_allocation_define_label(char *text);
RPY_EXTERN void vmprof_allocation_label(intptr_t number);
/* The program's name for a thread, by the kernel's number; 0: its own. */
RPY_EXTERN void vmprof_allocation_thread_name(intptr_t thread, char *name);
/* What the GC counts: rgc.ALLOCATION_TOTALS.  NULL until it has begun. */
RPY_EXTERN void vmprof_allocation_totals(void *totals);
/* Since the last start: bytes allocated, minor collections, samples, samples
   without a stack, time samples, time samples that met another sample, bytes
   that were taken for sampled objects, at most, objects that there was no room
   for */
RPY_EXTERN void vmprof_allocation_statistics(intptr_t counts[8]);

/* What is alive, of a program that runs on, as tracked_copy() has it; and whether
   that does not count from now on.  What the profile needs for it has been written
   then.  For vmprof_allocation_free(); NULL: there is no memory */
RPY_EXTERN int64_t *vmprof_allocation_alive(int forget);
RPY_EXTERN void vmprof_allocation_free(int64_t *copy);
/* Estimated bytes of it, and the most that there were after a minor collection */
RPY_EXTERN void vmprof_allocation_traced(double traced[2], int reset_peak);
/* What the calling thread allocates is not the program's, until it is not 'ignored'
   any more.  Returns what was so before. */
RPY_EXTERN int vmprof_allocation_ignore(int ignored);

/* For the GC */
RPY_EXTERN intptr_t vmprof_allocation_sampled(intptr_t size, void *address);
/* 'what': as in sampled_objects.py and sampled_outcomes.py */
enum {
    GC_STARTED, GC_OBJECT, GC_FOUND,
    GC_BEGIN, GC_END, GC_ENDED, GC_MARKED, GC_DIED, GC_PROMOTED, GC_PINNED,
    GC_NOT_KNOWN, GC_FREED, GC_LOST, GC_SHRUNK
};
/* 'value' is a type, or what was returned of the same object for GC_OBJECT. */
RPY_EXTERN intptr_t vmprof_allocation_fact(intptr_t what, intptr_t key,
                                           intptr_t which, intptr_t value,
                                           intptr_t size, void *address);

/* in vmprof_common.c and vmprof_unix.c */
PY_STACK_FRAME_T *get_vmprof_stack(void);
long vmprof_times_ignored(void);

#endif
