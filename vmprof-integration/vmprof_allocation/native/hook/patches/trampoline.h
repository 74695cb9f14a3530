#pragma once
/* Hooks at the entries of functions that are not ours.
 *
 * The entry becomes a jump to a detour; the instructions that the jump covers
 * run in a trampoline, before a jump back behind them:
 *
 *     entry:       jmp  detour          trampoline:  the moved instructions
 *     entry + n:   ...                               jmp  entry + n
 *
 * Each change is one aligned store (../machines/entry_patch.h).  It must be made while
 * no thread executes the first instructions of that function.
 */

#include <stdint.h>

#define TRAMPOLINES     3

/* Build the trampolines of the functions at 'entry', of which the first
   'moved' bytes can run elsewhere, in a page near them; 'detour' is what is to
   run instead.  Changes nothing yet.  None may be hooked.  Returns 0, or an
   errno: EINVAL for an entry that can't be hooked, ENOMEM if there is no place
   within what a jump reaches, or what the kernel says if it can't have other
   processors follow. */
int trampoline_build(const uintptr_t entry[TRAMPOLINES],
                     const int moved[TRAMPOLINES],
                     void *const detour[TRAMPOLINES]);

/* What calls the original function i */
void *trampoline_original(int i);

/* What leads from entry i to its detour, if it is stored there: entry_word_size bytes */
uint64_t trampoline_word(int i);

/* It was stored at an entry by others: all processors are to follow. */
void trampoline_changed(void);

/* True if entry i leads to its detour */
int trampoline_is_set(int i);

/* Make the pages of all entries writable, or put that back.  Returns 0 or an
   errno. */
int trampoline_writable(int writable);

/* Store at all entries what leads to the detours, or what was there.  The
   pages have to be writable. */
void trampoline_set(int hooked);
