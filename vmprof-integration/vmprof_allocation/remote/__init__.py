"""Processes that run already: attach, ctl and top.

A command listens at a socket, and has a thread of the process connect, which answers
what is asked (``control``): by a signal, if the process is prepared for it, or else as
a debugger would (``entry``)."""
