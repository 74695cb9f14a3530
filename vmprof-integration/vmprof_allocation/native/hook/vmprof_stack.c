#define _GNU_SOURCE
#include "vmprof_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#define MAX_NODES       100000
#define FULL_RECORD     1000    /* words; 8 KiB hold no more than 1019 */
#define STATIC_TLS      65536   /* glibc's static thread-local storage ends
                                   at the thread pointer */

static ptrdiff_t list_offset;   /* from the thread pointer; 0: not known */

static char *thread_pointer(void)
{
    char *p;
    __asm__("mov %%fs:0, %0" : "=r"(p));
    return p;
}

struct library {
    uintptr_t base;
    char *tls;
    size_t tls_size;
};

static int look_at_library(struct dl_phdr_info *info, size_t size, void *data)
{
    struct library *library = data;
    int i;

    (void)size;
    if (info->dlpi_addr != library->base)
        return 0;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_TLS) {
            library->tls = info->dlpi_tls_data;
            library->tls_size = segment->p_memsz;
        }
    }
    return 1;
}

/* Read memory that may not be there: a pipe refuses it politely. */
static int read_node(const int pipe_fds[2], uintptr_t address,
                     struct stack_node *node)
{
    if (address < 4096 || address % sizeof(void *) != 0)
        return 0;
    if (write(pipe_fds[1], (const void *)address, sizeof *node) !=
        (ssize_t)sizeof *node)
        return 0;
    return read(pipe_fds[0], node, sizeof *node) == (ssize_t)sizeof *node;
}

/* Does the list that begins with the node at 'address' hold the interpreted
   frames of 'record', in their order, and no others? */
static int matches(const int pipe_fds[2], uintptr_t address,
                   const char *record, size_t size)
{
    const size_t head = 1 + 2 * sizeof(int64_t);
    int64_t depth, pair[2];
    struct stack_node node;
    int64_t i = 0;
    int nodes, frames = 0;

    memcpy(&depth, record + 1 + sizeof depth, sizeof depth);
    if (size < head || depth < 0 || head + (size_t)depth * 8 > size)
        return 0;
    for (nodes = 0; address != 0; nodes++) {
        if (nodes == MAX_NODES || !read_node(pipe_fds, address, &node))
            return 0;
        address = (uintptr_t)node.next;
        if (node.kind == NODE_JITTED)
            continue;
        if (node.kind != NODE_CODE)
            return 0;
        do {
            if (i + 2 > depth)          /* vmprof's record was full */
                return depth >= FULL_RECORD && frames > 0;
            memcpy(pair, record + head + (size_t)i * 8, sizeof pair);
            i += 2;
        } while (pair[0] != NODE_CODE);
        if (pair[1] != node.value)
            return 0;
        frames++;
    }
    return frames > 0;
}

int vmprof_stack_find(uintptr_t base, const char *record, size_t size)
{
    struct library library = { base, NULL, 0 };
    int pipe_fds[2], found = 0;
    size_t i;

    if (list_offset != 0)
        return 0;
    if (dl_iterate_phdr(look_at_library, &library) == 0 ||
        library.tls == NULL || library.tls > thread_pointer() ||
        thread_pointer() - library.tls > STATIC_TLS)
        return ENOTSUP;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return errno;
    for (i = 0; i + sizeof(void *) <= library.tls_size; i += sizeof(void *)) {
        uintptr_t first = *(uintptr_t *)(library.tls + i);
        if (first != 0 && matches(pipe_fds, first, record, size)) {
            list_offset = library.tls + i - thread_pointer();
            found++;
        }
    }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    if (found != 1)
        list_offset = 0;
    return found == 1 ? 0 : ENOTSUP;
}

const struct stack_node *vmprof_stack_innermost(void)
{
    if (list_offset == 0)
        return NULL;
    return *(const struct stack_node **)(thread_pointer() + list_offset);
}
