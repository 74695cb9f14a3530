"""python -m vmprof_allocation attach PID: sample a program that was started without us.

``command`` asks ``target`` whether that is possible, has ``tracer`` (native/attach)
make a thread there, and talks with it through ``agent``; there, ``inside`` begins and
ends a session.  ``gil`` is for programs that have used no threads.
"""
