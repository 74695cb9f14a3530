#include "../handler_word.h"

#include <string.h>

#include "../guarded_read.h"

/* Return the address of the word that two instructions at 'address' load: adrp, and a
   4-byte ldr with the register that adrp has set.  Returns 0 for other instructions. */
static uintptr_t word_read(const unsigned char *code, uintptr_t address)
{
    uint32_t adrp, ldr;
    int64_t pages;

    memcpy(&adrp, code, sizeof adrp);
    memcpy(&ldr, code + sizeof adrp, sizeof ldr);
    if ((adrp & 0x9f000000) != 0x90000000 || (ldr & 0xffc00000) != 0xb9400000 ||
        (ldr >> 5 & 31) != (adrp & 31))
        return 0;
    /* the signed 21-bit distance of adrp, in pages; its lowest two bits are in a separate
       field */
    pages = (int64_t)(int32_t)((adrp >> 5 & 0x7ffff) << 13) >> 11 | (adrp >> 29 & 3);
    return (address & ~(uintptr_t)4095) + (uintptr_t)(pages * 4096) +
           4 * (ldr >> 10 & 0xfff);
}

uintptr_t handler_word(const unsigned char code[HANDLER_LOOK], uintptr_t address)
{
    static const unsigned char bti_c[4] = { 0x5f, 0x24, 0x03, 0xd5 };
    static const unsigned char ret[4] = { 0xc0, 0x03, 0x5f, 0xd6 };
    unsigned char getter[12];
    uint32_t call;

    if (address % 4 != 0)
        return 0;
    memcpy(&call, code, sizeof call);
    if ((call & 0xfc000000) != 0x94000000)              /* bl */
        return word_read(code, address);
    address += (uintptr_t)((int64_t)(int32_t)(call << 6) >> 4);
    if (!guarded_read(address, getter, sizeof bti_c))
        return 0;
    if (memcmp(getter, bti_c, sizeof bti_c) == 0)
        address += sizeof bti_c;
    if (!guarded_read(address, getter, sizeof getter) ||
        memcmp(getter + 8, ret, sizeof ret) != 0)
        return 0;
    return word_read(getter, address);
}
