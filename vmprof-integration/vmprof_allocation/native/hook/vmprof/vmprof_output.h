#pragma once
/* What vmprof writes, on its way to the profile.
 *
 * vmprof is enabled on a file of ours that nobody reads (the *decoy*).  What
 * libpypy writes to it, and whatever it writes out of vmprof's buffers, goes to
 * the recorder instead.  So nothing of the program's can be taken for
 * vmprof's, or the other way round: not if the program closes all files, nor
 * if it uses vmprof itself.  The decoy gets vmprof's header and trailer: who
 * reads the file that vmprof says it has (vmprof.disable() does) finds a
 * profile without samples.
 */

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Make the decoy.  'on_disabled' is called when somebody else disables vmprof,
   with its last record.  Returns the descriptor, or -1 and sets errno. */
int vmprof_output_open(void (*on_disabled)(const void *trailer, size_t size));

/* Its descriptor; -1: there is none */
int vmprof_output_decoy(void);

/* True while vmprof is enabled on the decoy */
int vmprof_output_is_enabled(void);

/* Another thread disables vmprof just now: wait until that is done, five
   seconds at most.  vmprof would not stand being enabled meanwhile. */
void vmprof_output_await_end(void);

/* A thread is in vmprof, and doesn't come back: vmprof can't be disabled. */
int vmprof_output_has_failed(void);

/* Around vmprof's enable() and disable(), in the thread that calls them for
   us */
void vmprof_output_control(int on);

/* Forget vmprof's buffers and close the decoy; harmless if that was done. */
void vmprof_output_close(void);

/* In a forked child, after vmprof_output_forget(): go on, with a decoy of its
   own.  Returns 0 or an errno. */
int vmprof_output_follow(void);

/* The opposite: it does not go on. */
void vmprof_output_unfollow(void);

/* In a forked child: close the decoy.  vmprof does not know that it has no
   file any more, and writes the names of new functions; when 20 buffers are
   full that can't be written, it waits 40 seconds, and raises an exception.
   So the pointer to write() has to stay ours; what comes is thrown away. */
void vmprof_output_forget(void);

/* Hand the names that came since the last time to the recorder.  With its
   lock, and with the GIL, by which they come. */
void vmprof_output_take_names(void);

/* Copy vmprof's stack sample that 'take' makes; it is not for the recorder.
   Returns its size in bytes; 0 if there was none. */
size_t vmprof_output_probe(void (*take)(void), const char **record);

/* Hand vmprof's stack sample that 'take' makes to the recorder, with these words in front
   of its stack, or, if 'are_all', instead of it.  At most VMPROF_OUTPUT_WORDS.  With the
   recorder's lock. */
#define VMPROF_OUTPUT_WORDS 2000
void vmprof_output_take(void (*take)(void), const int64_t *words, size_t count,
                        int are_all);

/* What libpypy calls instead of the C functions of these names */
ssize_t vmprof_output_write(int fd, const void *data, size_t size);
void *vmprof_output_mmap(void *address, size_t size, int protection, int flags,
                         int fd, off_t offset);
int vmprof_output_munmap(void *address, size_t size);
off_t vmprof_output_lseek(int fd, off_t offset, int whence);
int vmprof_output_sigaction(int signal, const struct sigaction *action,
                            struct sigaction *before);
