"""Profiles of a program that runs, to an engine that keeps profiles.

``start`` makes a folder, into which the program rotates
(session/periodic_rotation.py), and has ``python -m vmprof_push`` send what lies there.
The program's process loads no more than that, and only if its code asks for it.
"""
