"""The way into a process that is not prepared.

`target` checks whether the process can be entered.  `tracer` (native/attach) stops a
thread of the process and has it make a new thread, which runs `inside`.  `gil` finds
PyPy's lock in programs without threads, and `ticker` finds the word that makes a
program give the lock away.
"""
