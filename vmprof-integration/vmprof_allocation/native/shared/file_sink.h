#pragma once
/* A sink that writes a profile to the descriptor of a file or pipe.  The program can
   close the descriptor, or change its flags, at any time. */

#include <sys/types.h>

#include "sink.h"

#pragma GCC visibility push(hidden)

/* limit in milliseconds for waiting until a full non-blocking pipe has room; then the
   profile ends */
#define FILE_SINK_PATIENCE      10000

/* A sink that writes to a descriptor */
struct file_sink {
    struct sink sink;           /* the first field, so that a pointer to it can be cast */
    int fd;                     /* -1 after forget() */
    pid_t pid;                  /* process that writes the profile */
    dev_t device;               /* device and inode of the file, to notice that */
    ino_t inode;                /* the program has reused the descriptor's number */
};

/* Initialize a sink that writes to 'fd'.  The caller keeps the descriptor and closes it.
   Returns 0 or an errno. */
int file_sink_open(struct file_sink *, int fd);

/* Call write(2) so that the program gets no signal: the thread gets no SIGPIPE if the
   reader of a pipe has closed it, and no SIGXFSZ if the file would exceed RLIMIT_FSIZE.
   Returns the result of write(2), and sets errno.  All code of the sampler writes with
   this function. */
ssize_t file_sink_write(int fd, const char *bytes, size_t size);

#pragma GCC visibility pop
