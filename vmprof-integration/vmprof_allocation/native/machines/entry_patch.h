#pragma once
/* The instructions at the entry of a function, and how one changes them while other
 * threads run: what of trampoline.h is different on each processor.
 *
 *     entry:          jump to slot + DETOUR     slot:           the moved instructions
 *     entry + moved:  ...                                       jump to entry + moved
 *                                               slot + DETOUR:  jump to the detour
 */

#include <stddef.h>
#include <stdint.h>

#define ENTRY_SLOT      64      /* bytes of a slot, */
#define ENTRY_DETOUR    32      /*   and of the offset of its second half */

#pragma GCC visibility push(hidden)

/* How far from an entry its slot may be, less what functions and slots extend over */
uintptr_t entry_reach(void);

/* This process will change entries: to be called before the first change.  Returns 0,
   or an errno if other processors can't be made to see one. */
int entry_begin(void);

/* Can the first 'moved' bytes of the function at 'entry' be replaced by one store? */
int entry_is_possible(uintptr_t entry, int moved);

/* Write the slot, which is not executed yet, and return the word that leads from the
   entry to it. */
uint64_t entry_build(unsigned char *slot, uintptr_t entry, int moved,
                     const void *detour);

/* What the pages of an entry have to be protected with beside PROT_EXEC, ...: see
   mprotect() */
int entry_protection(uintptr_t entry);

/* The word at an entry: so many bytes of it are read and stored, at once */
extern const size_t entry_word_size;
uint64_t entry_load(uintptr_t entry);
void entry_store(uintptr_t entry, uint64_t word);

/* What was stored at these addresses is now what all processors execute. */
void entry_changed(uintptr_t code, size_t size);

#pragma GCC visibility pop
