#pragma once
/* Reading of small files of the kernel in /proc and /sys. */

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

/* Read at most 'size' - 1 bytes of the file, and terminate the text.  Returns 0 if the
   file is missing or empty. */
static inline int small_file_read(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;
    size_t total = 0;

    if (fd < 0)
        return 0;
    while (total < size - 1 && (length = read(fd, text + total, size - 1 - total)) > 0)
        total += (size_t)length;
    close(fd);
    text[total] = '\0';
    return total > 0;
}
