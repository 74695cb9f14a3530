#pragma once
/* The native frames of an allocation sample, found by libgcc's unwinder.
 *
 * For CPU samples, vmprof uses libunwind.  libunwind blocks all signals around each step,
 * which takes 20 microseconds per sample.  It also fails at the JIT's code, which has no
 * unwind information; then vmprof omits all native frames.  This module keeps the frames
 * of the native functions that the JIT's code has called. */

/* Write native frames to 'result' in vmprof's format, the innermost frame first.  The walk
   ends at the function that runs an interpreted frame, at the JIT's code, or after
   'max_frames' frames.  'frame' is the result of __builtin_frame_address(0) in a function
   that is not inlined.  The walk omits this function and its caller.  Returns the number of
   words written. */
__attribute__((visibility("hidden")))
int native_frames(void **result, int max_frames, const void *frame);
