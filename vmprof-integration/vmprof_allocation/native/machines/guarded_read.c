#define _GNU_SOURCE
#include "guarded_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CODE_PAGES      4096    /* entries of the cache: 16 MiB of code if no two pages
                                   share an entry */

/* Numbers of the pages in which code of the JIT was found */
static uintptr_t code_page[CODE_PAGES];

/* Return the cache's entry for the page that contains an address.  Pages are counted in
   units of 4 KiB; larger pages have several entries. */
static uintptr_t *cached_page(uintptr_t address)
{
    return &code_page[(address >> 12) % CODE_PAGES];
}

static int is_code(uintptr_t address)
{
    /* an empty entry has the number of page 0, which is never mapped */
    return address >> 12 != 0 &&
           __atomic_load_n(cached_page(address), __ATOMIC_RELAXED) == address >> 12;
}

void guarded_is_mapped(uintptr_t address)
{
    __atomic_store_n(cached_page(address), address >> 12, __ATOMIC_RELAXED);
}

/* Copy ranges of memory if process_vm_readv() is forbidden or does not exist.  The
   descriptor is not kept open: the program could close it and open another file with the
   same number. */
static int read_slowly(const struct iovec *from, const struct iovec *to, int count)
{
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), i;

    if (fd < 0)
        return 0;
    for (i = 0; i < count; i++)
        if (pread(fd, to[i].iov_base, to[i].iov_len, (off_t)(uintptr_t)from[i].iov_base) !=
            (ssize_t)to[i].iov_len)
            break;
    close(fd);
    return i == count;
}

int guarded_read_places(const struct iovec *from, const struct iovec *to, int count)
{
    ssize_t size = 0, done;
    int i;

    for (i = 0; i < count; i++)
        size += (ssize_t)from[i].iov_len;
    done = process_vm_readv(getpid(), to, (unsigned long)count, from, (unsigned long)count, 0);
    if (done < 0 && (errno == ENOSYS || errno == EPERM))
        return read_slowly(from, to, count);
    return done == size;
}

int guarded_read(uintptr_t address, void *buffer, size_t size)
{
    struct iovec there = { (void *)address, size }, here = { buffer, size };

    if (is_code(address) && is_code(address + size - 1)) {
        memcpy(buffer, (const void *)address, size);
        return 1;
    }
    return guarded_read_places(&there, &here, 1);
}
