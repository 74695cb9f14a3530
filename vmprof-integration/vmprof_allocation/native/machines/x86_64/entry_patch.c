#include "../entry_patch.h"

#include <string.h>

#define JUMP_SIZE       5               /* jmp rel32 */
#define MAX_MOVED       8               /* size of one aligned store in bytes */

const size_t entry_word_size = MAX_MOVED;

uintptr_t entry_reach(void)
{
    return ((uintptr_t)1 << 31) - ((uintptr_t)1 << 28);
}

int entry_begin(void)
{
    return 0;
}

int entry_is_possible(uintptr_t entry, int moved)
{
    return moved >= JUMP_SIZE && moved <= MAX_MOVED && entry % MAX_MOVED == 0;
}

static void put_far_jump(unsigned char *p, const void *target)
{
    static const unsigned char jump[6] = { 0xff, 0x25, 0, 0, 0, 0 };

    memcpy(p, jump, sizeof jump);
    memcpy(p + sizeof jump, &target, sizeof target);
}

uint64_t entry_build(unsigned char *slot, uintptr_t entry, int moved,
                     const void *detour)
{
    uint64_t word = entry_load(entry);
    unsigned char *bytes = (unsigned char *)&word;
    int32_t jump = (int32_t)((intptr_t)(slot + ENTRY_DETOUR) -
                             (intptr_t)(entry + JUMP_SIZE));

    memcpy(slot, (const void *)entry, (size_t)moved);
    put_far_jump(slot + moved, (const void *)(entry + (uintptr_t)moved));
    put_far_jump(slot + ENTRY_DETOUR, detour);
    bytes[0] = 0xe9;
    memcpy(bytes + 1, &jump, sizeof jump);
    return word;
}

int entry_protection(uintptr_t entry)
{
    (void)entry;
    return 0;
}

uint64_t entry_load(uintptr_t entry)
{
    return __atomic_load_n((const uint64_t *)entry, __ATOMIC_SEQ_CST);
}

void entry_store(uintptr_t entry, uint64_t word)
{
    __atomic_store_n((uint64_t *)entry, word, __ATOMIC_SEQ_CST);
}

void entry_changed(uintptr_t code, size_t size)
{
    (void)code;         /* x86-64 notices changes of code */
    (void)size;
}
