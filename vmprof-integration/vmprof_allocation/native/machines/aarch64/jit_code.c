/* The JIT's code for AArch64 allocates without a stub behind the end of a piece, so that a
 * return address is where the program stands.  Its calls of compiled code are not read. */
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
