/* The functions of jit_call.h and jit_stub.h for AArch64.  The JIT's code allocates without
   a stub after the end of a piece, so a return address is the real place.  Calls of
   compiled code are not recognized. */
#include "../jit_call.h"
#include "../jit_stub.h"

uintptr_t jit_stub_back(uintptr_t address)
{
    (void)address;
    return 0;
}

int jit_call_returns_to(uintptr_t address, struct jit_call *call)
{
    (void)address;
    (void)call;
    return 0;
}

int jit_call_helped_at(uintptr_t address, struct jit_call *call)
{
    (void)address;
    (void)call;
    return 0;
}

int jit_code_returns(const unsigned char *code, size_t bytes)
{
    (void)code;
    (void)bytes;
    return 0;
}

size_t jit_code_calls(const unsigned char code[JIT_CODE_LOOK])
{
    (void)code;
    return 0;
}

int jit_table_is_whole(void)
{
    return 0;
}
