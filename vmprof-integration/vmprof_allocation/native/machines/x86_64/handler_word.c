#include "../handler_word.h"

#include <string.h>

#include "../guarded_read.h"

/* Return the address to which an instruction of 'size' bytes at 'address' refers.  The last
   four bytes of the instruction are an offset from its end. */
static uintptr_t target(const unsigned char *code, uintptr_t address, int size)
{
    int32_t offset;

    memcpy(&offset, code + size - 4, sizeof offset);
    return address + (uintptr_t)size + (uintptr_t)(intptr_t)offset;
}

uintptr_t handler_word(const unsigned char code[HANDLER_LOOK], uintptr_t address)
{
    static const unsigned char endbr64[4] = { 0xf3, 0x0f, 0x1e, 0xfa };
    unsigned char getter[7];

    if (code[0] == 0x8b && (code[1] & 0xc7) == 0x05)    /* mov ...(%rip), reg */
        return target(code, address, 6);
    if (code[0] != 0xe8)                                /* call */
        return 0;
    address = target(code, address, 5);
    if (!guarded_read(address, getter, sizeof endbr64))
        return 0;
    if (memcmp(getter, endbr64, sizeof endbr64) == 0)
        address += sizeof endbr64;
    if (!guarded_read(address, getter, sizeof getter) || getter[0] != 0x8b ||
        getter[1] != 0x05 || getter[6] != 0xc3)         /* mov ...(%rip), eax; ret */
        return 0;
    return target(getter, address, 6);
}
