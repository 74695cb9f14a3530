"""The commands for running processes: attach, ctl and top.

A command listens at a socket. A thread of the process connects and answers the requests
(``control``). If the process is prepared, it starts this thread after a signal.
Otherwise, the command has the thread made with ptrace, as a debugger would (``entry``).
"""
