#define _GNU_SOURCE
#include "vmprof_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define KIND_CODE       1       /* value: the code object's number */
#define KIND_JITTED     3       /* value: stack pointer of the piece */

#define MAX_NODES       100000
#define FULL_RECORD     1000    /* words; 8 KiB hold no more than 1019 */
#define STATIC_TLS      65536   /* glibc's static thread-local storage ends
                                   at the thread pointer */

struct node {
    struct node *next;
    intptr_t value;
    intptr_t kind;
};

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
static int read_node(const int pipe_fds[2], uintptr_t address, struct node *node)
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
    struct node node;
    int64_t i = 0;
    int nodes, frames = 0;

    memcpy(&depth, record + 1 + sizeof depth, sizeof depth);
    if (size < head || depth < 0 || head + (size_t)depth * 8 > size)
        return 0;
    for (nodes = 0; address != 0; nodes++) {
        if (nodes == MAX_NODES || !read_node(pipe_fds, address, &node))
            return 0;
        address = (uintptr_t)node.next;
        if (node.kind == KIND_JITTED)
            continue;
        if (node.kind != KIND_CODE)
            return 0;
        do {
            if (i + 2 > depth)          /* vmprof's record was full */
                return depth >= FULL_RECORD && frames > 0;
            memcpy(pair, record + head + (size_t)i * 8, sizeof pair);
            i += 2;
        } while (pair[0] != KIND_CODE);
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

/* ____________________________________________________________ */
/* stubs
 *
 * The word below a piece's stack pointer is a return address only if the
 * piece didn't lower the pointer for a call with many arguments: it may be
 * anything.  So it is never followed before the memory is known to be there,
 * and never believed before both ends of the stub have been seen: the jump
 * back at the end of it, and before the place to which that jumps the
 * conditional jump to the stub.
 */

#define STUB_TAIL       96      /* bytes behind the call: a few instructions */
#define STUB_SIZE       256     /* the stub begins this close to the call */
#define BEFORE_BACK     40      /* the conditional jump is this close to it */

/* Pages in which a stub or its other end was found: the JIT's code, which
   stays where it is */
static uintptr_t code_page[64];

static uintptr_t *cached_page(uintptr_t address)
{
    return &code_page[(address >> 12) % 64];
}

static int is_code(uintptr_t address)
{
    /* page 0, of which an empty entry speaks, is never mapped */
    return address >> 12 != 0 && *cached_page(address) == address >> 12;
}

/* Copy memory that may not be there */
static int fetch(uintptr_t address, unsigned char *buffer, size_t size)
{
    struct iovec there = { (void *)address, size }, here = { buffer, size };

    if (is_code(address) && is_code(address + size - 1)) {
        memcpy(buffer, (const void *)address, size);
        return 1;
    }
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}

static uintptr_t relative(uintptr_t next, const unsigned char *operand)
{
    int32_t distance;

    memcpy(&distance, operand, sizeof distance);
    return next + (uintptr_t)(intptr_t)distance;
}

/* The size of one of the instructions that the JIT writes between the call
   and the jump back: it moves the result, loads constants and spilled values,
   and looks for an exception.  0 for any other. */
static size_t tail_instruction(const unsigned char *p)
{
    static const struct {
        unsigned char size, length;
        unsigned char byte[4], mask[4];
    } known[] = {
        { 10, 2, { 0x49, 0xbb }, { 0xff, 0xff } },      /* mov r11, imm64 */
        { 6, 2, { 0x41, 0xbb }, { 0xff, 0xff } },       /* mov r11d, imm32 */
        { 7, 3, { 0x49, 0xc7, 0xc3 }, { 0xff, 0xff, 0xff } },
        { 4, 3, { 0x4d, 0x8d, 0x5b }, { 0xff, 0xff, 0xff } },   /* lea r11, */
        { 7, 3, { 0x4d, 0x8d, 0x9b }, { 0xff, 0xff, 0xff } },   /*  [r11+x] */
        { 3, 3, { 0x48, 0x89, 0xc0 }, { 0xf8, 0xff, 0xc0 } },   /* mov r, r */
        { 4, 3, { 0x48, 0x8b, 0x45 }, { 0xf8, 0xff, 0xc7 } },   /* mov r, */
        { 7, 3, { 0x48, 0x8b, 0x85 }, { 0xf8, 0xff, 0xc7 } },   /*  [rbp+x] */
        { 4, 4, { 0x49, 0x83, 0x3b, 0x00 }, { 0xff, 0xff, 0xff, 0xff } },
        { 5, 3, { 0x49, 0x83, 0x7b }, { 0xff, 0xff, 0xff } },   /* cmp qword */
        { 8, 3, { 0x49, 0x83, 0xbb }, { 0xff, 0xff, 0xff } },   /*  [r11+x], */
        { 9, 4, { 0x48, 0x83, 0x3c, 0x25 }, { 0xff, 0xff, 0xff, 0xff } },
        { 6, 2, { 0x0f, 0x85 }, { 0xff, 0xff } },       /* jne rel32 */
    };
    size_t i, k;

    for (i = 0; i < sizeof known / sizeof *known; i++) {
        for (k = 0; k < known[i].length; k++)
            if ((p[k] & known[i].mask[k]) != known[i].byte[k])
                break;
        if (k == known[i].length)
            return known[i].size;
    }
    return 0;
}

/* Where the stub that contains the return address jumps back to, or 0 */
static uintptr_t jump_target(uintptr_t address)
{
    unsigned char tail[STUB_TAIL];
    size_t at = 0, size;

    if (!fetch(address, tail, sizeof tail))
        return 0;
    while (tail[at] != 0xe9) {
        size = tail_instruction(tail + at);
        at += size;
        if (size == 0 || at + 10 > sizeof tail)
            return 0;
    }
    return relative(address + at + 5, tail + at + 1);
}

/* Is there a conditional jump to the stub, before 'back'? */
static int is_entered_from(uintptr_t back, uintptr_t address)
{
    unsigned char code[BEFORE_BACK];
    uintptr_t start = back - sizeof code;
    size_t i;

    if (back >= address || !fetch(start, code, sizeof code))
        return 0;
    for (i = 0; i + 6 <= sizeof code; i++)
        if (code[i] == 0x0f && (code[i + 1] & 0xf0) == 0x80 &&
            address - relative(start + i + 6, code + i + 2) <= STUB_SIZE)
            return 1;
    return 0;
}

uintptr_t *vmprof_stack_stub(uintptr_t *back)
{
    struct node *node;
    uintptr_t *slot, address;

    if (list_offset == 0)
        return NULL;
    node = *(struct node **)(thread_pointer() + list_offset);
    if (node == NULL || node->kind != KIND_JITTED)
        return NULL;
    slot = (uintptr_t *)node->value - 1;
    address = *slot;
    *back = jump_target(address);
    if (*back == 0 || !is_entered_from(*back, address))
        return NULL;
    *cached_page(address) = address >> 12;
    *cached_page(*back) = *back >> 12;
    return slot;
}
