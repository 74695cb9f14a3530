"""Inject a thread into a process that is not prepared for requests (control/prepared).

`target` checks whether this is possible. `tracer` (native/attach) stops a thread of the
process and has it make a new thread, which runs `inside`. `gil` finds the function that
creates PyPy's GIL, for programs without threads. `ticker` finds the word in memory that
makes a program release the GIL.
"""
