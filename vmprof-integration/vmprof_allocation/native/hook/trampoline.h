#pragma once
/* Hooks at the entries of functions that are not ours.
 *
 * The entry becomes a jump to a detour; the instructions that the jump covers
 * run in a trampoline, before a jump back behind them:
 *
 *     entry:       jmp  detour          trampoline:  the moved instructions
 *     entry + n:   ...                               jmp  entry + n
 *
 * Each change is one aligned store of eight bytes.  It must be made while no
 * thread executes the first instructions of that function.
 */

#include <stdint.h>

#define TRAMPOLINES     3

/* Build the trampolines of the functions at 'entry', of which the first
   'moved' bytes can run elsewhere, in a page near them; 'detour' is what is to
   run instead.  Changes nothing yet.  None may be hooked.  Returns 0, or an
   errno: EINVAL for an entry that can't be hooked, ENOMEM if there is no place
   within the 2 GiB that a jump reaches. */
int trampoline_build(const uintptr_t entry[TRAMPOLINES],
                     const int moved[TRAMPOLINES],
                     void *const detour[TRAMPOLINES]);

/* What calls the original function i */
void *trampoline_original(int i);

/* The eight bytes at entry i that lead to its detour */
uint64_t trampoline_word(int i);

/* True if entry i leads to its detour */
int trampoline_is_set(int i);

/* Make the pages of all entries writable, or put that back.  Returns 0 or an
   errno. */
int trampoline_writable(int writable);

/* Store at all entries what leads to the detours, or what was there.  The
   pages have to be writable. */
void trampoline_set(int hooked);
