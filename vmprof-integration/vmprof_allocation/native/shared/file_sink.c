#define _GNU_SOURCE
#include "file_sink.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int is_our_file(const struct file_sink *file)
{
    struct stat st;

    /* the program may have closed our descriptor, and its number may be another file's */
    return fstat(file->fd, &st) == 0 && st.st_dev == file->device &&
           st.st_ino == file->inode;
}

ssize_t file_sink_write(int fd, const char *p, size_t size)
{
    static const struct timespec at_once;
    sigset_t ours, before, pending;
    ssize_t count;
    int error;

    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE))
        sigdelset(&ours, SIGPIPE);
    if (sigismember(&pending, SIGXFSZ))
        sigdelset(&ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    count = write(fd, p, size);
    error = errno;
    if (count < 0 && (error == EPIPE || error == EFBIG))
        (void)sigtimedwait(&ours, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return count;
}

/* Wait until a full pipe has room, for at most FILE_SINK_PATIENCE ms.  The wait is limited
   because the program waits, too, perhaps with the GIL.  Returns 0 and sets errno if the
   pipe does not get room. */
static int wait_for_reader(int fd)
{
    struct pollfd pipe = { fd, POLLOUT, 0 };
    int count = poll(&pipe, 1, FILE_SINK_PATIENCE);

    if (count == 0)
        errno = ETIMEDOUT;
    return count > 0 || errno == EINTR;
}

/* Write all bytes to a descriptor.  Returns 0 or an errno.  After an error, truncates a
   file to its previous size. */
static int write_all(int fd, const char *p, size_t size)
{
    off_t start = lseek(fd, 0, SEEK_CUR);

    while (size > 0) {
        ssize_t count = file_sink_write(fd, p, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN && wait_for_reader(fd))
            continue;
        if (count <= 0) {
            int error = count < 0 ? errno : EIO;
            /* leave no half batch */
            if (start >= 0 && ftruncate(fd, start) == 0)
                (void)lseek(fd, start, SEEK_SET);
            return error;
        }
        p += count;
        size -= (size_t)count;
    }
    return 0;
}

static int append(struct sink *sink, const void *batch, size_t size)
{
    const struct file_sink *file = (const struct file_sink *)sink;

    /* a child that was made without fork() has not called forget() */
    if (file->pid != getpid())
        return 0;
    return is_our_file(file) ? write_all(file->fd, batch, size) : EBADF;
}

/* Close the descriptor in a forked child: the reader of a pipe waits until all processes
   have closed the other end. */
static void forget(struct sink *sink)
{
    struct file_sink *file = (struct file_sink *)sink;

    if (is_our_file(file))
        close(file->fd);
    file->fd = -1;
}

int file_sink_open(struct file_sink *file, int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return errno;
    file->sink.append = append;
    file->sink.forget = forget;
    file->fd = fd;
    file->pid = getpid();
    file->device = st.st_dev;
    file->inode = st.st_ino;
    return 0;
}
