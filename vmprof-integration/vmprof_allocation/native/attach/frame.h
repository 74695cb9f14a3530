#pragma once
/* What the entering process writes into memory of its own in the other process, behind
   the code of MACHINE/stub.c: what that reads. */
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX_PROGRAM 8192
/* AMX alone takes 8 KiB */
#define FRAME_MAX_VECTORS 16384
#define FRAME_MAX_REGISTERS 34

struct frame {
    /* functions of libc, there */
    uint64_t create, self, detach, sleep, unmap, errno_location;
    /* and of libpypy: RPyGilAllocate() where there is no GIL yet, or 0; those that
       take the GIL and give it back, and one that runs a program */
    uint64_t allocate, ensure, release, run;
    uint64_t thread;
    /* the signal mask that the thread had, as the kernel has it */
    uint64_t mask;
    int32_t old_errno;
    /* of pthread_create() */
    int32_t result;
    /* the new thread has the GIL, and what ensure() returned */
    int32_t has_gil, state;
    /* Who watches says that the stopped thread has left this memory.  So often the new
       thread looks for that; if it is not so then, the memory stays. */
    int32_t is_left, looks;
    /* what the thread goes on with if nobody watches it any more, in the order of
       MACHINE/registers.c */
    uint64_t registers[FRAME_MAX_REGISTERS];
    /* all that was mapped: the code, this, and the stopped thread's stack */
    uint64_t memory, memory_size;
    /* in Python */
    char program[FRAME_MAX_PROGRAM];
    /* as that machine's stub.c saves them */
    char vectors[FRAME_MAX_VECTORS] __attribute__((aligned(64)));
};

/* The assembler can't ask the compiler. */
#define FRAME_CREATE 0
#define FRAME_SELF 8
#define FRAME_DETACH 16
#define FRAME_SLEEP 24
#define FRAME_UNMAP 32
#define FRAME_ERRNO_LOCATION 40
#define FRAME_ALLOCATE 48
#define FRAME_ENSURE 56
#define FRAME_RELEASE 64
#define FRAME_RUN 72
#define FRAME_THREAD 80
#define FRAME_MASK 88
#define FRAME_OLD_ERRNO 96
#define FRAME_RESULT 100
#define FRAME_HAS_GIL 104
#define FRAME_STATE 108
#define FRAME_IS_LEFT 112
#define FRAME_LOOKS 116
#define FRAME_REGISTERS 120
#define FRAME_MEMORY 392
#define FRAME_MEMORY_SIZE 400
#define FRAME_PROGRAM 408
#define FRAME_VECTORS 8640

#define FRAME_HAS(field, at) \
    _Static_assert(offsetof(struct frame, field) == (at), #field)
FRAME_HAS(create, FRAME_CREATE);
FRAME_HAS(self, FRAME_SELF);
FRAME_HAS(detach, FRAME_DETACH);
FRAME_HAS(sleep, FRAME_SLEEP);
FRAME_HAS(unmap, FRAME_UNMAP);
FRAME_HAS(errno_location, FRAME_ERRNO_LOCATION);
FRAME_HAS(allocate, FRAME_ALLOCATE);
FRAME_HAS(ensure, FRAME_ENSURE);
FRAME_HAS(release, FRAME_RELEASE);
FRAME_HAS(run, FRAME_RUN);
FRAME_HAS(thread, FRAME_THREAD);
FRAME_HAS(mask, FRAME_MASK);
FRAME_HAS(old_errno, FRAME_OLD_ERRNO);
FRAME_HAS(result, FRAME_RESULT);
FRAME_HAS(has_gil, FRAME_HAS_GIL);
FRAME_HAS(state, FRAME_STATE);
FRAME_HAS(is_left, FRAME_IS_LEFT);
FRAME_HAS(looks, FRAME_LOOKS);
FRAME_HAS(registers, FRAME_REGISTERS);
FRAME_HAS(memory, FRAME_MEMORY);
FRAME_HAS(memory_size, FRAME_MEMORY_SIZE);
FRAME_HAS(program, FRAME_PROGRAM);
FRAME_HAS(vectors, FRAME_VECTORS);
