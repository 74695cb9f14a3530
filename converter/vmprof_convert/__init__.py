"""Conversion of vmprof's profiles, with or without allocation samples.

The readers create a profile in memory (profile/model.py). The reports (report/) and the
writers show it. The command line is in cli/.
"""
