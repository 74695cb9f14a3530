#pragma once
/* A file that the sampler keeps open in the program's process.
 *
 * The descriptor has a high number if possible, so that the program's own files get the
 * same numbers as without the sampler.  The program may close the descriptor, and open
 * another file that gets its number; device and inode of the file show that.  Include this
 * header where _GNU_SOURCE is defined.
 */

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* An open file of the sampler, which device and inode identify */
struct own_file {
    int fd;                             /* -1 if no file is open */
    dev_t device;
    ino_t inode;
};

/* Duplicate a descriptor to a number from 512 on, or from 3 on if that is not possible,
   and close 'low'.  Returns the new number, or -1 if neither is possible. */
static inline int own_file_move_up(int low)
{
    int high = fcntl(low, F_DUPFD_CLOEXEC, 512);

    if (high < 0)
        high = fcntl(low, F_DUPFD_CLOEXEC, 3);
    close(low);
    return high;
}

/* Keep a file that was just opened, and move its descriptor 'low' to a high number.  'low'
   is -1 if opening failed.  Returns the new number, or -1 if there is no file. */
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

/* Return whether the file's descriptor is open and still belongs to this file. */
static inline int own_file_is_there(const struct own_file *file)
{
    struct stat st;

    return file->fd >= 0 && fstat(file->fd, &st) == 0 &&
           st.st_dev == file->device && st.st_ino == file->inode;
}

/* Close the file, unless the program has closed it. */
static inline void own_file_close(struct own_file *file)
{
    if (own_file_is_there(file))
        close(file->fd);
    file->fd = -1;
}
