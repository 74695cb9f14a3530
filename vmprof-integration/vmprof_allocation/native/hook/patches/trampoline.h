#pragma once
/* Entry patches of the GC's functions.
 *
 * The entry of a function becomes a jump to a detour.  The instructions that the jump
 * replaces run in a trampoline, before a jump to the instruction after them:
 *
 *     entry:       jmp  detour          trampoline:  the moved instructions
 *     entry + n:   ...                               jmp  entry + n
 *
 * Each change is one aligned store (../machines/entry_patch.h).  It must be made while no
 * thread executes the first instructions of the function.
 */

#include <stdint.h>

#define TRAMPOLINES     3

/* Build the trampolines, in a page near the functions.  'entry' has the addresses of the
 * functions, whose first 'moved' bytes can run elsewhere.  'detour' has the functions to
 * run instead.  No entry may be patched yet, and none is changed.  Returns 0 or an errno:
 * EINVAL for an unsuitable entry, or ENOMEM if there is no place within a jump's reach.
 * Other errnos come from the kernel, which may be unable to synchronize the processors.
 */
int trampoline_build(const uintptr_t entry[TRAMPOLINES],
                     const int moved[TRAMPOLINES],
                     void *const detour[TRAMPOLINES]);

/* Return the trampoline of function i.  A call of it runs the original function. */
void *trampoline_original(int i);

/* Return the word that leads from entry i to its detour.  It has entry_word_size bytes. */
uint64_t trampoline_word(int i);

/* Synchronize all processors after code outside of this module has stored a word of
   trampoline_word() at an entry. */
void trampoline_changed(void);

/* Return whether entry i leads to its detour. */
int trampoline_is_set(int i);

/* Make the pages of all entries writable, or read-only again if 'writable' is 0.  Returns 0
   or an errno. */
int trampoline_writable(int writable);

/* Store words at all entries: if 'hooked' is true, the words that lead to the detours,
   otherwise the original words.  The pages must be writable. */
void trampoline_set(int hooked);
