#pragma once
/* A profile that goes into a file, or a pipe, by a descriptor that the program
 * may do anything to. */

#include <sys/types.h>

#include "sink.h"

#pragma GCC visibility push(hidden)

/* a pipe that takes nothing for so many milliseconds ends the profile, if it
   does not block */
#define FILE_SINK_PATIENCE      10000

struct file_sink {
    struct sink sink;           /* first: it is given to others */
    int fd;
    pid_t pid;
    dev_t device;
    ino_t inode;
};

/* Begin to write to 'fd', which stays the caller's.  Returns 0 or an errno. */
int file_sink_open(struct file_sink *, int fd);

/* Call write(2) without a signal for the program: if the reader of a pipe has left, or the
   file would exceed RLIMIT_FSIZE, the thread gets no SIGPIPE or SIGXFSZ.  The sampler writes
   all bytes of its own with this function.  It returns the result of write(2), and errno. */
ssize_t file_sink_write(int fd, const char *bytes, size_t size);

#pragma GCC visibility pop
