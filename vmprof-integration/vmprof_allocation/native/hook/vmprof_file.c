#define _GNU_SOURCE
#include "vmprof_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "hook.h"

#define HANDLER_SIZE    192     /* bytes of its code that are looked at */

static int *file;
static int is_set;

/* Copy memory that may not be there: a pipe refuses it politely. */
static int copy(const int pipe_fds[2], uintptr_t address, void *to, size_t size)
{
    ssize_t written = write(pipe_fds[1], (const void *)address, size);

    /* also of what was there in part: the next one is not to get it */
    return written > 0 && read(pipe_fds[0], to, (size_t)written) == written &&
           written == (ssize_t)size;
}

/* Where an instruction of 'size' bytes at 'address' leads, which ends with an
   offset from its end */
static uintptr_t target(const unsigned char *code, uintptr_t address, int size)
{
    int32_t offset;

    memcpy(&offset, code + size - 4, sizeof offset);
    return address + (uintptr_t)size + (uintptr_t)(intptr_t)offset;
}

/* The word that the code at 'address' reads, or has a function return that does
   nothing else; 0: it does not */
static uintptr_t word_of(const int pipe_fds[2], const unsigned char *code,
                         uintptr_t address)
{
    static const unsigned char endbr64[4] = { 0xf3, 0x0f, 0x1e, 0xfa };
    unsigned char getter[7];

    if (code[0] == 0x8b && (code[1] & 0xc7) == 0x05)    /* mov ...(%rip), reg */
        return target(code, address, 6);
    if (code[0] != 0xe8)                                /* call */
        return 0;
    address = target(code, address, 5);
    if (!copy(pipe_fds, address, getter, sizeof endbr64))
        return 0;
    if (memcmp(getter, endbr64, sizeof endbr64) == 0)
        address += sizeof endbr64;
    if (!copy(pipe_fds, address, getter, sizeof getter) || getter[0] != 0x8b ||
        getter[1] != 0x05 || getter[6] != 0xc3)         /* ...; ret */
        return 0;
    return target(getter, address, 6);
}

static int look(const int pipe_fds[2], uintptr_t handler, int fd)
{
    unsigned char code[HANDLER_SIZE];
    uintptr_t base = hook_base(handler), found = 0, word;
    int i, value;

    if (base == 0 || !copy(pipe_fds, handler, code, sizeof code))
        return ENOTSUP;
    for (i = 0; i + 6 <= HANDLER_SIZE; i++) {
        word = word_of(pipe_fds, code + i, handler + (uintptr_t)i);
        if (word == 0 || (word & 3) != 0 || hook_base(word) != base ||
            !copy(pipe_fds, word, &value, sizeof value) || value != fd)
            continue;
        if (found != 0 && found != word)
            return ENOTSUP;
        found = word;
    }
    file = (int *)found;
    return found == 0 ? ENOTSUP : 0;
}

int vmprof_file_learn(uintptr_t handler, int fd)
{
    int pipe_fds[2], error;

    file = NULL;
    is_set = 0;
    if (fd < 3)
        return ENOTSUP;         /* many words hold a small number */
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return errno;
    error = look(pipe_fds, handler, fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return error;
}

int vmprof_file_set(int fd)
{
    /* vmprof has closed its own at the fork */
    if (file == NULL || *file != -1)
        return ENOTSUP;
    *file = fd;
    is_set = 1;
    return 0;
}

void vmprof_file_take_back(void)
{
    if (is_set)
        *file = -1;
    is_set = 0;
}
