#pragma once
/* The frame of an injection: the data for the code in MACHINE/stub.c.  The attaching
   process (tracer.c) maps memory in the other process, and writes the frame there, after
   the code. */
#include <stddef.h>
#include <stdint.h>

/* Maximum size of the Python program in bytes, including the final zero byte */
#define FRAME_MAX_PROGRAM 8192
/* Size of the memory for vector registers in bytes; AMX alone takes 8 KiB */
#define FRAME_MAX_VECTORS 16384
/* Maximum number of general registers */
#define FRAME_MAX_REGISTERS 34

struct frame {
    /* addresses of libc's functions in the other process */
    uint64_t create, self, detach, sleep, unmap, errno_location;
    /* addresses of libpypy's functions there: RPyGilAllocate() if the GIL does not exist
       yet, or 0; the functions that take and release the GIL; and the function that runs
       a Python program */
    uint64_t allocate, ensure, release, run;
    /* the pthread_t of the new thread */
    uint64_t thread;
    /* signal mask of the stopped thread, as the kernel stores it */
    uint64_t mask;
    /* errno of the stopped thread */
    int32_t old_errno;
    /* result of pthread_create() */
    int32_t result;
    /* whether the new thread has got the GIL, and the result of the function `ensure` */
    int32_t has_gil, state;
    /* whether the stopped thread has left this memory, set by the attaching process; and
       how often the new thread still checks `is_left` before it returns without unmapping
       the memory */
    int32_t is_left, looks;
    /* registers with which the stopped thread continues if the attaching process is
       killed, in the order of MACHINE/registers.c */
    uint64_t registers[FRAME_MAX_REGISTERS];
    /* address and size of the mapped memory: the code, the frame, and the stopped
       thread's stack */
    uint64_t memory, memory_size;
    /* the Python program that the new thread runs */
    char program[FRAME_MAX_PROGRAM];
    /* vector registers of the stopped thread, in the layout of MACHINE/stub.c */
    char vectors[FRAME_MAX_VECTORS] __attribute__((aligned(64)));
};

/* Offsets of the fields of struct frame in bytes, for the assembler in MACHINE/stub.c */
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
