#pragma once
/* Allocation samples: the functions that rvmprof.py and the GC call.
 *
 * rpython/memory/gc/sampling.py describes the GC's part, recorder.h how a sample is taken,
 * and profile_log.h how the profile is written.  Without allocation samples,
 * vmprof_allocation_open() is not called, and vmprof writes its file itself. */

#include "vmprof_allocation.h"

#include <stdint.h>

#if defined(RPYTHON_VMPROF) && defined(VMPROF_LINUX)

/* rvmprof.py calls the following functions.  It holds the GIL except in the first four. */

/* Open a profile on the file 'fd', before vmprof_init(); vmprof's records then go through
   the recorder.  vmprof's timer runs only if 'take_time_samples' is not 0; 'memory' is as
   for vmprof_init().  Returns 0, or -1 and sets errno. */
RPY_EXTERN int vmprof_allocation_open(int fd, int take_time_samples,
                                      int memory);
/* Set a limit for the samples (pace.h): samples per second, or a share of the run time in
   millionths.  0 and 0 remove the limit. */
RPY_EXTERN void vmprof_allocation_limit(intptr_t per_second, intptr_t share);
/* Set the GC's names of types (type_names.h).  One call per process is enough. */
RPY_EXTERN void vmprof_allocation_type_names(char *text, intptr_t size);
/* Start to record, after vmprof_enable().  The texts are settings (PROFILE.rst): 'settings'
   for all segments of the profile, 'own' for the first segment only.  With 'lifetimes', the
   outcomes of the objects are recorded, and otherwise only their types.  With 'in_memory',
   the profile has no samples, but only the stacks and types that vmprof_allocation_alive()
   refers to.  Returns 0, or -1 and sets errno. */
RPY_EXTERN int vmprof_allocation_start(char *settings, char *own, int lifetimes,
                                       int in_memory, int fixed_gaps);
/* End this segment of the profile, and begin the next segment in the file 'fd', which
   inherits the tracked objects.  Call it right after a minor collection, without an
   allocation in between.  Returns 0.  Returns an errno > 0 if the next segment cannot
   begin; then the present one continues.  Returns a negative errno if an earlier error has
   ended the present segment; the next one has begun. */
RPY_EXTERN int vmprof_allocation_rotate(int fd, char *own);
/* Set the function that numbers the classes of sampled objects (cintf.CLASS_OF), or
   NULL. */
RPY_EXTERN void vmprof_allocation_classes(intptr_t (*class_of)(void *object));
/* Record the name of the class with this number, in UTF-8.  The first object of the class
   may be recorded before. */
RPY_EXTERN void vmprof_allocation_class_name(intptr_t number, char *name,
                                             intptr_t size);
/* Record a mark: a name that the program gives to the present time. */
RPY_EXTERN void vmprof_allocation_mark(char *name);
/* Define a set of labels, "key=value" with 0x1f between the pairs.  Returns its number, or
   0 if there are too many sets. */
RPY_EXTERN intptr_t vmprof_allocation_define_label(char *text);
/* Give the calling thread a set of labels, for its later samples.  The number 0 removes the
   thread's labels. */
RPY_EXTERN void vmprof_allocation_label(intptr_t number);
/* Record the program's name of a thread by the kernel's number; if 'thread' is 0, record
   the command line of the program. */
RPY_EXTERN void vmprof_allocation_thread_name(intptr_t thread, char *name);
/* Set the GC's totals, rgc.ALLOCATION_TOTALS.  Until then, no samples are recorded. */
RPY_EXTERN void vmprof_allocation_totals(void *totals);
/* Store the counts since the last start: allocated bytes, minor collections, allocation
   samples, allocation samples without a stack, CPU samples, CPU samples that were dropped
   because of another sample, maximal bytes of memory for sampled objects, and objects that
   could not be tracked for lack of memory. */
RPY_EXTERN void vmprof_allocation_statistics(intptr_t counts[8]);

/* Write the stacks and names of the live sampled objects to the profile, and return a list
   of these objects, in the layout of tracked_copy().  With 'forget', later calls omit the
   objects.  The caller frees the list with vmprof_allocation_free().  Returns NULL if there
   is no memory. */
RPY_EXTERN int64_t *vmprof_allocation_alive(int forget);
RPY_EXTERN void vmprof_allocation_free(int64_t *copy);
/* Store the estimated bytes of the live objects, and the maximum after any minor
   collection.  With 'reset_peak', the maximum starts again from the present estimate. */
RPY_EXTERN void vmprof_allocation_traced(double traced[2], int reset_peak);
/* Set whether the allocations of the calling thread are ignored.  Returns the previous
   value. */
RPY_EXTERN int vmprof_allocation_ignore(int ignored);

/* The GC calls the following two functions, with the GIL: see sampled() in sampling.py, and
   fact() in sampled_objects.py and sampled_outcomes.py. */

/* Take a sample.  Returns its key, 0 if no sample was taken, or -1 to end the sampling,
   because there is no profile. */
RPY_EXTERN intptr_t vmprof_allocation_sampled(intptr_t size, void *address);
/* The kinds of facts ('what'), in the order of their numbers in the GC's modules */
enum {
    GC_STARTED, GC_OBJECT, GC_FOUND,
    GC_BEGIN, GC_END, GC_ENDED, GC_MARKED, GC_DIED, GC_PROMOTED, GC_PINNED,
    GC_NOT_KNOWN, GC_FREED, GC_LOST, GC_SHRUNK
};
/* Receive a fact about a sampled object.  'value' is the type for GC_OBJECT; for later
   facts it is the result of GC_OBJECT for the same object. */
RPY_EXTERN intptr_t vmprof_allocation_fact(intptr_t what, intptr_t key,
                                           intptr_t which, intptr_t value,
                                           intptr_t size, void *address);

/* Functions of vmprof_common.c and vmprof_unix.c that no header declares */
PY_STACK_FRAME_T *get_vmprof_stack(void);
long vmprof_times_ignored(void);

#endif
