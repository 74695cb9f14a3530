#pragma once
/* The code that runs in the other process, on a separate page (MACHINE/stub.c) */

/* Addresses in the original of this code, from stub_begin to stub_end.  stub_marker is
   after the system call that shows the attaching process that the new thread exists.
   stub_resume is a word; in the copy, tracer.c writes the address there at which the
   stopped thread continues if the attaching process is killed. */
extern const char stub_begin[], stub_marker[], stub_resume[], stub_end[];
