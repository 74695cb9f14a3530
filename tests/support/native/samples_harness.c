/* Writes allocation samples with rpython/samples.  The stack that vmprof reports is deep,
   and ends in compiled code with inlined functions.  Usage: samples_harness PROFILE FRAMES
   [stopped]  Takes samples until several buffers are full, and reports their objects. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rvmprof_allocation.h"
#include "vmprof_get_custom_offset.h"
#include "vmprof_mt.h"
#include "vmprof_stack.h"

#define INLINED     20

static int fd, is_stopped;
static vmprof_stack_t *innermost;

int vmp_profile_fileno(void)
{
    return fd;
}

int vmp_write_meta(const char *key, const char *value)
{
    (void)key;
    (void)value;
    return 0;
}

long vmprof_enter_signal(void)
{
    return is_stopped;
}

long vmprof_exit_signal(void)
{
    return 0;
}

void *get_vmprof_stack(void)
{
    return innermost;
}

int IS_VMPROF_EVAL(void *function)
{
    (void)function;
    return 0;
}

void *pypy_find_codemap_at_addr(long address, long *start)
{
    (void)address;
    *start = 0x1000;
    return (void *)1;
}

long pypy_yield_codemap_at_addr(void *codemap, long address, long *position)
{
    (void)codemap;
    (void)address;
    return *position >= INLINED ? -1 : 0x4000 + 8 * ++*position;
}

int main(int argc, char **argv)
{
    static intptr_t machine_stack[2] = { 0x2000, 0 };
    int frames = atoi(argv[2]), i;
    vmprof_stack_t *stack = calloc((size_t)frames + 1, sizeof *stack);

    fd = open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0 || prepare_concurrent_bufs() < 0)
        return 1;
    vmprof_allocation_open(0);
    vmprof_allocation_start("interval=1", "");
    for (i = 0; i < frames; i++) {
        stack[i].kind = VMPROF_CODE_TAG;
        stack[i].value = 8 * i + 8;
        stack[i].next = &stack[i + 1];
    }
    stack[frames].kind = VMPROF_JITTED_TAG;
    stack[frames].value = (intptr_t)&machine_stack[1];
    innermost = stack;
    for (i = 1; i <= 40; i++)
        if (vmprof_allocation_sampled(16, NULL) != i)
            return 2;
    is_stopped = argc > 3 && strcmp(argv[3], "stopped") == 0;
    printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
    for (i = 1; i <= 40; i++)
        (void)vmprof_allocation_fact(1, i, 0, 3, 16, NULL);
    for (i = 0; i < 1000; i++)
        (void)vmprof_allocation_fact(1, 40, i, 3, 16, NULL);
    printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
    if (is_stopped && vmprof_allocation_sampled(16, NULL) != 0)
        return 3;
    vmprof_allocation_close(1000);
    shutdown_concurrent_bufs(fd);
    free(stack);
    return 0;
}
