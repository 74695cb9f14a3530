"""The analysis of profiles: sums, comparisons, leaks, thresholds and retainers.

The modules get a profile, whole or reduced by selection.py. They return the numbers
that the reports and the writers show.
"""
