#pragma once
/* The code that runs in the other process, on a separate page (MACHINE/stub.c) */

/* stub_marker is after the system call that tells the attaching process that the new
   thread exists.  stub_resume is the word for the address at which the stopped thread
   was. */
extern const char stub_begin[], stub_marker[], stub_resume[], stub_end[];
