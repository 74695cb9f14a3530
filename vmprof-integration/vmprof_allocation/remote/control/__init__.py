"""Requests from another process, and their answers: for example, to start sampling.

A *prepared* process only has a handler for one signal. It has no additional thread or
socket, and only the modules that the handler needs. The same is true of the children
that it forks. A command listens at a socket in a folder that only the same user can
access, and sends the signal. A new thread of the process connects, answers the
requests, and ends when the command closes the connection. In a process that is not
prepared, the command has such a thread made by ``remote.entry``.
"""
