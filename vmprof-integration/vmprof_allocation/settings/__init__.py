"""The settings of a run, and the names of its processes and profiles."""
