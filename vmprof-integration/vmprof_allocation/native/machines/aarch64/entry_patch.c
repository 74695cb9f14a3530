#define _GNU_SOURCE
#include "../entry_patch.h"

#include <elf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "segment.h"

/*      entry:      b  slot + DETOUR        slot:           the moved instruction
 *      entry + 4:  ...                                     b  entry + 4
 *                                          slot + DETOUR:  ldr x16, detour; br x16
 *
 * The jump back is also a b: with guarded branch targets (BTI), a br would need a landing
 * pad at entry + 4.  The code between a call and the called function may change x16.
 *
 * The architecture allows some instructions, including b, to be replaced while another
 * processor may execute them, but not the first instructions of libpypy's functions.  So
 * the caller must have the GIL, without which no thread runs these functions.
 * entry_changed() updates the instruction cache and the instructions that other processors
 * have fetched before.
 */

#define INSTRUCTION     4

#ifndef PROT_BTI
#define PROT_BTI        0x10
#endif
#ifndef HWCAP2_BTI
#define HWCAP2_BTI      (1 << 17)
#endif

const size_t entry_word_size = INSTRUCTION;

uintptr_t entry_reach(void)
{
    return ((uintptr_t)1 << 27) - ((uintptr_t)1 << 25);
}

int entry_begin(void)
{
    /* register for the call of membarrier() in entry_changed(), without which a thread
       could get the GIL and run instructions that were fetched before the change */
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
                   0, 0) < 0 ? errno : 0;
}

int entry_is_possible(uintptr_t entry, int moved)
{
    return moved == INSTRUCTION && entry % INSTRUCTION == 0;
}

static uint32_t branch(uintptr_t from, uintptr_t to)
{
    return 0x14000000 | ((uint32_t)((intptr_t)(to - from) >> 2) & 0x3ffffff);
}

uint64_t entry_build(unsigned char *slot, uintptr_t entry, int moved,
                     const void *detour)
{
    uint32_t *there = (uint32_t *)slot;
    uint32_t *far = (uint32_t *)(slot + ENTRY_DETOUR);

    (void)moved;
    there[0] = (uint32_t)entry_load(entry);
    there[1] = branch((uintptr_t)&there[1], entry + INSTRUCTION);
    far[0] = 0x58000050;                /* ldr x16, the word after the br */
    far[1] = 0xd61f0200;                /* br x16 */
    memcpy(&far[2], &detour, sizeof detour);
    return branch(entry, (uintptr_t)far);
}

/* ____________________________________________________________ */

/* Return whether a library's ELF note of properties records that all targets of branches in
   the library have landing pads. */
static int has_landings(const unsigned char *note, size_t size)
{
    const Elf64_Nhdr *head = (const Elf64_Nhdr *)note;
    const unsigned char *end, *property;
    uint32_t type, length, value;

    if (size < sizeof *head + 4 || head->n_type != NT_GNU_PROPERTY_TYPE_0 ||
        head->n_namesz != 4 || head->n_descsz > size - sizeof *head - 4)
        return 0;
    property = note + sizeof *head + 4;
    for (end = property + head->n_descsz; end - property >= 12;
         property += 8 + ((length + 7) & ~7u)) {
        memcpy(&type, property, 4);
        memcpy(&length, property + 4, 4);
        memcpy(&value, property + 8, 4);
        if (type == GNU_PROPERTY_AARCH64_FEATURE_1_AND)
            return (value & GNU_PROPERTY_AARCH64_FEATURE_1_BTI) != 0;
        if (length > (size_t)(end - property))
            return 0;
    }
    return 0;
}

int entry_protection(uintptr_t entry)
{
    const unsigned char *note;
    size_t size;

    /* the dynamic linker has set PROT_BTI for the library's pages; mprotect() without this
       bit would clear it */
    if (!(getauxval(AT_HWCAP2) & HWCAP2_BTI))
        return 0;
    note = segment_find(entry, PT_GNU_PROPERTY, &size);
    return note != NULL && has_landings(note, size) ? PROT_BTI : 0;
}

/* ____________________________________________________________ */

uint64_t entry_load(uintptr_t entry)
{
    return __atomic_load_n((const uint32_t *)entry, __ATOMIC_SEQ_CST);
}

void entry_store(uintptr_t entry, uint64_t word)
{
    __atomic_store_n((uint32_t *)entry, (uint32_t)word, __ATOMIC_SEQ_CST);
}

void entry_changed(uintptr_t code, size_t size)
{
    __builtin___clear_cache((char *)code, (char *)code + size);
    /* entry_begin() has checked that the kernel supports this command */
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}
