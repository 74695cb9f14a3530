#pragma once
/* Entry patches: the processor's part of hook/patches/trampoline.c.  A patch replaces the
 * first instructions of a function by a jump to our code (the *detour*), while other
 * threads run.  The first 'moved' bytes of the function move into a *slot*, which is memory
 * near the function.
 *
 *      entry:          jump to slot + DETOUR     slot:           the moved instructions
 *      entry + moved:  ...                                       jump to entry + moved
 *                                                slot + DETOUR:  jump to the detour
 */

#include <stddef.h>
#include <stdint.h>

#define ENTRY_SLOT      64      /* size of a slot in bytes, ... */
#define ENTRY_DETOUR    32      /* ... and offset of its second half */

#pragma GCC visibility push(hidden)

/* Return the maximum distance in bytes from an entry to its slot.  A jump reaches farther,
   by more than the size of all functions and slots. */
uintptr_t entry_reach(void);

/* Prepare this process for changes of entries, before the first change.  Returns 0, or
   an errno if a change cannot be made visible to other processors. */
int entry_begin(void);

/* Return whether one store can replace the first 'moved' bytes of the function at
   'entry'. */
int entry_is_possible(uintptr_t entry, int moved);

/* Write the slot of a function, while no thread executes the slot.  Returns the word that
   entry_store() has to store at the entry to make the function jump to the detour. */
uint64_t entry_build(unsigned char *slot, uintptr_t entry, int moved,
                     const void *detour);

/* Return the bits that mprotect() needs for the pages of an entry in addition to
   PROT_READ, PROT_WRITE and PROT_EXEC. */
int entry_protection(uintptr_t entry);

/* Size of the word at an entry in bytes; entry_load() and entry_store() read and store
   this word in one access */
extern const size_t entry_word_size;
uint64_t entry_load(uintptr_t entry);
void entry_store(uintptr_t entry, uint64_t word);

/* Make sure that all processors execute the bytes that were stored at these addresses. */
void entry_changed(uintptr_t code, size_t size);

#pragma GCC visibility pop
