#pragma once
/* The native frames of an allocation sample.
 *
 * For time samples vmprof asks libunwind, which blocks all signals around each
 * step: 20 microseconds a sample.  And it gives up at the JIT's code, of
 * which no unwinder knows anything; then all native frames are left out.  Here
 * libgcc's unwinder is asked, and what is inside the JIT's code is kept. */

/* Write the frames outside of the one with this address as vmprof does, the
   innermost first: up to the function that runs an interpreted frame, or the
   JIT's code.  Of more than 'max_frames' the outer ones are left out.  'frame'
   is what __builtin_frame_address(0) says in a function that is not inlined;
   its caller is left out, too.  Returns the number of words. */
__attribute__((visibility("hidden")))
int native_frames(void **result, int max_frames, const void *frame);
