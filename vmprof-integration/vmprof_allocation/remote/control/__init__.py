"""What a process is asked for by another one, and answers: sampling begins, and ends.

A process that is *prepared* has a handler for one signal, and nothing else: no thread,
no socket, no module that it does not need; so have the children that it forks.  Who
wants something of it listens at a socket in a folder that only the same user can look
into, and sends the signal.  A thread of the program's then connects, answers what is
asked, and ends when who asked has gone.  In one that is not prepared, such a thread is
made by force (``remote.entry``).
"""
