#pragma once
/* What the attaching process writes into memory of its own in the other process: what
   stub.c reads there, and agent.c after it. */
#include <stddef.h>
#include <stdint.h>

/* of sun_path */
#define FRAME_MAX_SOCKET 108
/* AMX alone takes 8 KiB */
#define FRAME_MAX_XSTATE 16384

struct frame {
    /* functions of libc, there */
    uint64_t create, open, find, errno_location;
    /* RPyGilAllocate(), where there is no GIL yet; or 0 */
    uint64_t allocate;
    uint64_t thread;
    /* the signal mask that the thread had, as the kernel has it */
    uint64_t mask;
    int32_t old_errno;
    /* of pthread_create() */
    int32_t result;
    /* 1: the library was not loaded */
    int32_t failed, unused;
    /* what the thread goes on with if nobody watches it any more: r15 r14 r13 r12 rbp
       rbx r11 r10 r9 r8 rax rcx rdx rsi rdi flags rsp */
    uint64_t registers[17];
    char library[4096];
    char function[64];
    /* who it calls */
    char socket[FRAME_MAX_SOCKET];
    /* all that was mapped: the stopped thread's code, this, and its stack */
    uint64_t memory, memory_size;
    char xstate[FRAME_MAX_XSTATE] __attribute__((aligned(64)));
};

/* The assembler can't ask the compiler. */
#define FRAME_CREATE 0
#define FRAME_OPEN 8
#define FRAME_FIND 16
#define FRAME_ERRNO_LOCATION 24
#define FRAME_ALLOCATE 32
#define FRAME_THREAD 40
#define FRAME_MASK 48
#define FRAME_OLD_ERRNO 56
#define FRAME_RESULT 60
#define FRAME_FAILED 64
#define FRAME_REGISTERS 72
#define FRAME_LIBRARY 208
#define FRAME_FUNCTION 4304
#define FRAME_XSTATE 4544

#define FRAME_HAS(field, at) \
    _Static_assert(offsetof(struct frame, field) == (at), #field)
FRAME_HAS(create, FRAME_CREATE);
FRAME_HAS(open, FRAME_OPEN);
FRAME_HAS(find, FRAME_FIND);
FRAME_HAS(errno_location, FRAME_ERRNO_LOCATION);
FRAME_HAS(allocate, FRAME_ALLOCATE);
FRAME_HAS(thread, FRAME_THREAD);
FRAME_HAS(mask, FRAME_MASK);
FRAME_HAS(old_errno, FRAME_OLD_ERRNO);
FRAME_HAS(result, FRAME_RESULT);
FRAME_HAS(failed, FRAME_FAILED);
FRAME_HAS(registers, FRAME_REGISTERS);
FRAME_HAS(library, FRAME_LIBRARY);
FRAME_HAS(function, FRAME_FUNCTION);
FRAME_HAS(xstate, FRAME_XSTATE);
