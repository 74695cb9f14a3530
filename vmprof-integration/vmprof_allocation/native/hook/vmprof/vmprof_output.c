#define _GNU_SOURCE
#include "vmprof_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "code_names.h"
#include "file_sink.h"
#include "grace_period.h"
#include "own_file.h"
#include "recorder.h"
#include "vmprof_file.h"

#define MARKER_NAME     '\x02'
#define MARKER_TRAILER  '\x03'
#define TRAILER_SIZE    25

/* maximum wait in milliseconds for a thread that writes a name to vmprof's buffers */
#define GRACE           5000

/* The layout of vmprof's buffers; vmprof maps all 20 at once. */
#define BUFFERS         20
#define BUFFER_SIZE     8192
struct vmprof_buffer {
    unsigned int data_size;
    unsigned int data_offset;
    char data[BUFFER_SIZE - 2 * sizeof(unsigned int)];
};

/* Whether this thread enables or disables vmprof for us. */
static __thread __attribute__((tls_model("initial-exec"))) int is_control;

/* The decoy's descriptor, or -1, and its device and inode, which identify it. */
static int decoy = -1;
static dev_t decoy_device;
static ino_t decoy_inode;
static void (*disabled)(const void *trailer, size_t size);

static volatile int was_enabled;
static struct vmprof_buffer *volatile buffers;  /* NULL if vmprof is disabled */
static volatile int writing;                    /* number of threads in write_record() */
static volatile unsigned int writes;            /* number of calls of write_record() */
static volatile int has_failed;                 /* whether vmprof could not be disabled */
static unsigned int names_taken[BUFFERS];       /* bytes of names that were seen in
                                                   each buffer */
static unsigned int complete[BUFFERS];          /* bytes of these names that are final */
static int64_t first_name[BUFFERS];             /* first function's number, to
                                                   recognize a reused buffer */

/* A stack sample that does not go to the recorder directly, and its size in bytes.  The
   reason is vmprof_output_probe() (PROBING) or vmprof_output_take() (TAKING). */
static char probe[BUFFER_SIZE];
static size_t probe_size;
static enum { NOT_PROBING, PROBING, TAKING } is_probing;

/* ____________________________________________________________ */
/* the decoy */

/* Make the decoy.  Returns its descriptor, or -1 and sets errno. */
static int open_decoy(void)
{
    struct stat st;
    int fd = memfd_create("vmprof", MFD_CLOEXEC);

    if (fd < 0)         /* if memfd_create() is forbidden, the decoy cannot be read */
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0 || (fd = own_file_move_up(fd)) < 0)
        return -1;
    if (fstat(fd, &st) < 0) {
        close(fd);
        return -1;
    }
    decoy_device = st.st_dev;
    decoy_inode = st.st_ino;
    decoy = fd;
    return fd;
}

int vmprof_output_open(void (*on_disabled)(const void *, size_t))
{
    memset(names_taken, 0, sizeof names_taken);
    memset(complete, 0, sizeof complete);
    memset(first_name, 0, sizeof first_name);
    buffers = NULL;
    was_enabled = has_failed = 0;
    disabled = on_disabled;
    return open_decoy();
}

/* Return whether the descriptor still refers to the decoy. */
static int is_decoy(int fd)
{
    struct stat st;

    /* the program may have closed the decoy, and opened another file */
    return fd >= 0 && fd == decoy && fstat(fd, &st) == 0 &&
           st.st_dev == decoy_device && st.st_ino == decoy_inode;
}

int vmprof_output_decoy(void)
{
    return decoy;
}

int vmprof_output_is_enabled(void)
{
    return buffers != NULL && decoy >= 0;
}

void vmprof_output_await_end(void)
{
    static const struct timespec millisecond = { 0, 1000000 };
    int tries;

    for (tries = 0; was_enabled && !has_failed && decoy >= 0 && tries < 5000;
         tries++)
        nanosleep(&millisecond, NULL);
}

int vmprof_output_has_failed(void)
{
    return has_failed;
}

void vmprof_output_control(int on)
{
    is_control = on;
}

void vmprof_output_close(void)
{
    int fd = decoy;

    is_control = 0;
    recorder_lock();
    buffers = NULL;
    recorder_unlock();
    if (is_decoy(fd))
        close(fd);
    decoy = -1;
}

void vmprof_output_forget(void)
{
    is_control = 0;
    writing = 0;                /* the writing threads do not exist in the child */
    if (is_decoy(decoy))
        close(decoy);
    decoy = -1;
}

int vmprof_output_follow(void)
{
    int fd;

    if (buffers == NULL)
        return ENOTSUP;
    fd = open_decoy();
    if (fd < 0)
        return errno;
    return vmprof_file_set(fd);
}

void vmprof_output_unfollow(void)
{
    vmprof_file_take_back();
    vmprof_output_forget();
}

/* ____________________________________________________________ */
/* names */

#define NAME_HEAD       (1 + 2 * (unsigned int)sizeof(int64_t))
#define LONGEST_NAME    (NAME_HEAD + 1023)      /* vmprof cuts the text */

/* Return the size in bytes of the record with a name at the offset 'at' of a buffer.
   Returns BUFFER_SIZE if the length in the record is invalid. */
static unsigned int record_size(const struct vmprof_buffer *b, unsigned int at)
{
    int64_t length;

    memcpy(&length, b->data + at + 1 + sizeof length, sizeof length);
    if (length < 0 || length > (int64_t)sizeof b->data)
        return BUFFER_SIZE;
    return NAME_HEAD + (unsigned int)length;
}

/* Pass the new names in buffer 'i' to the recorder.
 *
 * vmprof keeps the names of new functions until 8 KiB are full.  The profile of a process
 * that is killed needs them earlier.
 *
 * vmprof raises data_size before it writes the record, without the GIL.  The last record
 * may therefore still have bytes of older records.  It is complete when another record
 * follows or vmprof writes the buffer.  Until then, each call passes it again, and
 * code_names.c replaces the name if the text has changed.
 */
static void take_names(int i, unsigned int size)
{
    struct vmprof_buffer *b = &buffers[i];
    int64_t first;

    memcpy(&first, b->data + 1, sizeof first);
    if (first != first_name[i] || size < names_taken[i]) {
        first_name[i] = first;
        complete[i] = 0;
    }
    profile_log_names(b->data + complete[i], size - complete[i]);
    /* Records are found from the first to the last, and the last one cannot begin before
       the place at which this loop stops. */
    while (complete[i] + LONGEST_NAME < size)
        complete[i] += record_size(b, complete[i]);
    names_taken[i] = size;
}

/* Return whether a buffer contains names and nothing else. */
static int holds_names(const struct vmprof_buffer *b)
{
    unsigned int at = 0, size = b->data_size;

    if (b->data_offset != 0 || size == 0 || size > sizeof b->data)
        return 0;
    while (at + NAME_HEAD <= size && b->data[at] == MARKER_NAME)
        at += record_size(b, at);
    return at == size;
}

void vmprof_output_take_names(void)
{
    int i;

    for (i = 0; i < BUFFERS && buffers != NULL; i++) {
        struct vmprof_buffer *b = &buffers[i];
        unsigned int size = b->data_size;
        if (holds_names(b))
            take_names(i, size);
    }
}

/* ____________________________________________________________ */
/* functions that libpypy calls */

/* Return the index of vmprof's buffer from which 'data' is written, or -1. */
static int buffer_index(const char *data)
{
    ptrdiff_t offset = data - (const char *)buffers;

    if (buffers == NULL || offset < 0 || offset >= BUFFERS * BUFFER_SIZE)
        return -1;
    return (int)(offset / BUFFER_SIZE);
}

static void take_stack(const char *data, size_t size)
{
    if (!recorder_stack(data, size))
        profile_log_bytes(data, size);
}

/* Pass a record from buffer 'i' to the recorder, or keep it for a probe. */
static void take_record(int i, const char *data, size_t size)
{
    if (*data == MARKER_NAME) {
        take_names(i, (unsigned int)size);
        return;
    }
    if (is_probing != NOT_PROBING && size <= sizeof probe) {
        /* 'probe' has an earlier CPU sample, which vmprof could not write at once */
        if (is_probing == TAKING && probe_size > 0)
            take_stack(probe, probe_size);
        memcpy(probe, data, size);
        probe_size = size;
        return;
    }
    take_stack(data, size);
}

/* Pass a record of vmprof to the recorder, with the recorder's lock. */
static void write_record(const void *data, size_t size)
{
    int held = recorder_has_lock(), i;

    if (!held)
        recorder_lock();
    i = buffer_index(data);             /* vmprof may have unmapped the buffers by now */
    if (i >= 0)
        take_record(i, data, size);
    else {
        profile_log_bytes(data, size);  /* header or trailer */
        code_names_keep_head(data, size);
    }
    if (!held)
        recorder_unlock();
}

ssize_t vmprof_output_write(int fd, const void *data, size_t size)
{
    if (buffer_index(data) < 0) {
        int is_trailer = buffers == NULL && size == TRAILER_SIZE &&
                         *(const char *)data == MARKER_TRAILER;
        if (fd < 0 || fd != decoy)
            return write(fd, data, size);
        if (is_decoy(fd))
            (void)file_sink_write(fd, data, size);
        else if (!is_control && !is_trailer)
            return write(fd, data, size);       /* a file of the program */
        if (!is_control && is_trailer) {
            disabled(data, size);
            return (ssize_t)size;
        }
    }
    __sync_fetch_and_add(&writing, 1);
    __sync_fetch_and_add(&writes, 1);
    write_record(data, size);
    __sync_fetch_and_sub(&writing, 1);
    return (ssize_t)size;
}

/* Wait until no thread writes a name.  The name of a new function is written to vmprof's
   buffers without the GIL.  Returns 0, or an errno if a thread has not finished. */
static int await_names(void)
{
    static const struct timespec pause = { 0, 100000 };
    unsigned int before;
    int error, tries;

    do {
        for (tries = 0; writing != 0; tries++) {
            if (tries == 10 * GRACE)
                return ETIMEDOUT;
            nanosleep(&pause, NULL);
        }
        before = writes;
        error = grace_period(GRACE);
        /* a thread that waits for the recorder's lock in write_record() has not finished,
           although it counts as waiting in grace_period() */
    } while (error == 0 && (writing != 0 || writes != before));
    return error;
}

/* Wait for the threads that write names when vmprof_disable() ignores vmprof's signal,
 * because it unmaps the buffers next.  vmprof_disable() itself only waits for threads that
 * take samples.  A thread that writes a name would write to unmapped memory, or make an
 * assertion fail.  No new thread can begin to write a name by now.
 */
int vmprof_output_sigaction(int signal, const struct sigaction *action,
                            struct sigaction *before)
{
    int error = 0;

    if (signal == SIGPROF && action != NULL && action->sa_handler == SIG_IGN &&
        vmprof_output_is_enabled())
        error = await_names();
    if (error != 0) {
        has_failed = 1;
        errno = error;          /* the buffers stay mapped */
        return -1;
    }
    return sigaction(signal, action, before);
}

/* Notice the buffers, which vmprof maps when it is enabled. */
void *vmprof_output_mmap(void *address, size_t size, int protection, int flags,
                         int fd, off_t offset)
{
    void *map = mmap(address, size, protection, flags, fd, offset);

    if (is_control && map != MAP_FAILED && size == BUFFERS * BUFFER_SIZE) {
        buffers = map;
        was_enabled = 1;
    }
    return map;
}

/* Notice that vmprof unmaps its buffers, because some thread disables it. */
int vmprof_output_munmap(void *address, size_t size)
{
    if (address != NULL && address == buffers) {
        /* vmprof_output_take_names() reads the buffers */
        recorder_lock();
        buffers = NULL;
        recorder_unlock();
    }
    return munmap(address, size);
}

/* Reject an invalid descriptor without a system call.  With each sample, vmprof rewinds
   the file for the resident memory, even if it has not opened the file. */
off_t vmprof_output_lseek(int fd, off_t offset, int whence)
{
    if (fd < 0) {
        errno = EBADF;
        return -1;
    }
    return lseek(fd, offset, whence);
}

size_t vmprof_output_probe(void (*take)(void), const char **record)
{
    recorder_lock();
    probe_size = 0;
    is_probing = PROBING;
    take();
    is_probing = NOT_PROBING;
    recorder_unlock();
    *record = probe;
    return probe_size;
}

void vmprof_output_take(void (*take)(void), const int64_t *words, size_t count,
                        int are_all)
{
    static char record[sizeof probe + VMPROF_OUTPUT_WORDS * sizeof *words];
    const size_t head = 1 + 2 * sizeof(int64_t);
    size_t own, dropped = 0;
    int64_t depth;

    probe_size = 0;
    is_probing = TAKING;
    take();
    is_probing = NOT_PROBING;
    if (probe_size == 0)
        return;
    if (probe_size < head || count == 0 || count > VMPROF_OUTPUT_WORDS) {
        take_stack(probe, probe_size);
        return;
    }
    memcpy(&depth, probe + 1 + sizeof depth, sizeof depth);
    own = (size_t)depth * sizeof *words;
    if (are_all && depth >= 0 && own <= probe_size - head) {
        dropped = own;
        depth = 0;
    }
    memcpy(record, probe, head);
    depth += (int64_t)count;
    memcpy(record + 1 + sizeof depth, &depth, sizeof depth);
    memcpy(record + head, words, count * sizeof *words);
    memcpy(record + head + count * sizeof *words, probe + head + dropped,
           probe_size - head - dropped);
    take_stack(record, probe_size - dropped + count * sizeof *words);
}
