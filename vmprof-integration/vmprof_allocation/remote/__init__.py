"""The access to running processes, for the commands attach, control and live.

A command listens at a socket. A thread of the process connects and answers the requests
(``control``). A *prepared* process (prepared.py) starts this thread after a signal. In
any other process, the command has the thread made with ptrace, as a debugger would
(``entry``).
"""
