#pragma once
/* The output of vmprof, on its way to the profile.
 *
 * vmprof is enabled on a file that we make, the *decoy*.  libpypy's writes to the decoy,
 * and its writes from vmprof's buffers, are passed to the recorder instead.  Therefore,
 * the program's data is never taken for vmprof's, and vice versa, even if the program
 * closes all files or uses vmprof itself.  The decoy gets vmprof's header and trailer.
 * So vmprof.disable(), which reads vmprof's file, finds a profile without samples.
 */

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Make the decoy.  'on_disabled' is called with vmprof's last record when the program
   disables vmprof.  Returns the decoy's descriptor, or -1 and sets errno. */
int vmprof_output_open(void (*on_disabled)(const void *trailer, size_t size));

/* Return the descriptor of the decoy, or -1 without a decoy. */
int vmprof_output_decoy(void);

/* Return whether vmprof is enabled on the decoy. */
int vmprof_output_is_enabled(void);

/* Wait until another thread has disabled vmprof, at most for 5 s.  vmprof must not be
   enabled meanwhile. */
void vmprof_output_await_end(void);

/* Return whether an attempt to disable vmprof has failed, because a thread did not finish
   writing to vmprof's buffers in time. */
int vmprof_output_has_failed(void);

/* Announce with 1 that the calling thread enables or disables vmprof for us, and with 0
   that it has done so.  Other enabling and disabling is the program's. */
void vmprof_output_control(int on);

/* Forget vmprof's buffers, and close the decoy.  May be called again. */
void vmprof_output_close(void);

/* Make a new decoy in a forked child that is sampled, after vmprof_output_forget().
   Returns 0 or an errno. */
int vmprof_output_follow(void);

/* Undo vmprof_output_follow(). */
void vmprof_output_unfollow(void);

/* Close the decoy in a forked child.  vmprof does not know that it has no file, and
 * writes the names of new functions.  When 20 buffers are full and cannot be written,
 * vmprof waits for 40 s and raises an exception.  So the pointer to write() must stay
 * redirected, and the data is discarded.
 */
void vmprof_output_forget(void);

/* Pass the names that vmprof has buffered since the last call to the recorder.  The
   caller has the recorder's lock and the GIL. */
void vmprof_output_take_names(void);

/* Make '*record' the stack sample that vmprof takes when 'take' is called.  The sample does
   not reach the recorder.  Returns its size in bytes, or 0 if there was no sample. */
size_t vmprof_output_probe(void (*take)(void), const char **record);

/* Call 'take', and pass the stack sample that vmprof then takes to the recorder.  The
   'count' words are inserted before its stack, or replace the stack if 'are_all' is true.
   'count' is at most VMPROF_OUTPUT_WORDS.  The caller has the recorder's lock. */
#define VMPROF_OUTPUT_WORDS 2000
void vmprof_output_take(void (*take)(void), const int64_t *words, size_t count,
                        int are_all);

/* The functions that libpypy calls instead of the C functions of these names. */
ssize_t vmprof_output_write(int fd, const void *data, size_t size);
void *vmprof_output_mmap(void *address, size_t size, int protection, int flags,
                         int fd, off_t offset);
int vmprof_output_munmap(void *address, size_t size);
off_t vmprof_output_lseek(int fd, off_t offset, int whence);
int vmprof_output_sigaction(int signal, const struct sigaction *action,
                            struct sigaction *before);
