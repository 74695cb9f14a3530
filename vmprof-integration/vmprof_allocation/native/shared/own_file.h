#pragma once
/* A file of ours among the program's descriptors: it has a number that the program would not
 * get without us, and is not touched if the program has closed it, and opened one of its own
 * by that number.  Include it where _GNU_SOURCE is defined.
 */

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct own_file {
    int fd;                             /* -1: there is none */
    dev_t device;
    ino_t inode;
};

/* The same file by another number; closes 'low'.  Returns -1 if there is none. */
static inline int own_file_move_up(int low)
{
    int high = fcntl(low, F_DUPFD_CLOEXEC, 512);

    if (high < 0)
        high = fcntl(low, F_DUPFD_CLOEXEC, 3);
    close(low);
    return high;
}

/* 'low': just opened, or -1.  Returns the number that it has now, or -1. */
static inline int own_file_take(struct own_file *file, int low)
{
    struct stat st;

    file->fd = low < 0 ? -1 : own_file_move_up(low);
    if (file->fd >= 0 && fstat(file->fd, &st) == 0) {
        file->device = st.st_dev;
        file->inode = st.st_ino;
    }
    return file->fd;
}

static inline int own_file_is_there(const struct own_file *file)
{
    struct stat st;

    return file->fd >= 0 && fstat(file->fd, &st) == 0 &&
           st.st_dev == file->device && st.st_ino == file->inode;
}

static inline void own_file_close(struct own_file *file)
{
    if (own_file_is_there(file))
        close(file->fd);
    file->fd = -1;
}
