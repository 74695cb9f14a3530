#pragma once
/* Code that runs in the other process, on a page of its own: MACHINE/stub.c. */

/* stub_marker is behind the system call that says that the thread is made;
   stub_resume the word that holds where the stopped thread was */
extern const char stub_begin[], stub_marker[], stub_resume[], stub_end[];
